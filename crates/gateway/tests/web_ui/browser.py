"""Drives Chromium by the DevTools protocol: loads pages, runs expressions in them, and prints what these give.

Takes the address of the first page, and then expressions. An expression that begins with `go:` is one after which the
browser loads another page; one that begins with `until:` is repeated until it holds, for ten seconds. Prints a JSON list: the value of each, and what the browser complained of.
"""
import asyncio
import itertools
import json
import re
import subprocess
import sys
import tempfile

import websockets


async def main(address, expressions):
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
    browser = subprocess.Popen(
        command + [f"--user-data-dir={folder.name}", "about:blank"], stderr=subprocess.PIPE, text=True
    )
    try:
        endpoint = next(re.search(r"ws://\S+", line)[0] for line in browser.stderr if "ws://" in line)
        async with websockets.connect(endpoint, max_size=None) as socket:
            return await drive(socket, address, expressions)
    finally:
        browser.terminate()
        browser.wait()


async def drive(socket, address, expressions):
    ids, complaints, session = itertools.count(1), [], {}

    async def receive():
        message = json.loads(await asyncio.wait_for(socket.recv(), 20))
        params = message.get("params", {})
        if message.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            complaints.append(params["entry"]["text"])
        if message.get("method") == "Runtime.exceptionThrown":
            complaints.append(params["exceptionDetails"]["text"])
        return message

    async def call(method, loads=False, **params):
        number, answer, loaded = next(ids), None, not loads
        await socket.send(json.dumps({"id": number, "method": method, "params": params, **session}))
        while answer is None or not loaded:
            message = await receive()
            loaded = loaded or message.get("method") == "Page.loadEventFired"
            answer = message if message.get("id") == number else answer
        return answer["result"]

    target = (await call("Target.createTarget", url="about:blank"))["targetId"]
    session["sessionId"] = (await call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
    for domain in ["Page", "Runtime", "Log"]:
        await call(f"{domain}.enable")
    await call("Page.navigate", loads=True, url=address)
    values = []
    for expression in expressions:
        loads = expression.startswith("go:")
        expression = expression.removeprefix("go:")
        waits = expression.startswith("until:")
        expression = expression.removeprefix("until:")
        for _ in range(200 if waits else 1):
            result = await call("Runtime.evaluate", loads=loads, expression=expression, returnByValue=True)
            if not waits or result["result"].get("value"):
                break
            await asyncio.sleep(0.05)
        values.append(result["result"].get("value"))
    return values + [complaints]


print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2:]))))
