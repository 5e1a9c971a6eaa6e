"""Drives Chromium by the DevTools protocol: loads pages, runs expressions in them, and prints what these give.

Takes the address of the first page, and then expressions. An expression that begins with `go:` is one after which the
browser loads another page; one that begins with `wait:` is repeated until its value is true. After `get:` stands an
address that is asked for beside the browser; its value is the status. After `screen:` stand the width of the window from
then on, in pixels, and its colours, as in `390 dark`; after these may stand `print` or `forced`, for a page on paper or in
the colours of a person. Prints a JSON list: the value of each, and what the
browser complained of.
"""
import asyncio
import itertools
import json
import re
import subprocess
import sys
import tempfile
import urllib.request

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
        message = json.loads(await asyncio.wait_for(socket.recv(), 60))
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

    async def evaluate(expression, loads=False):
        result = await call("Runtime.evaluate", loads=loads, expression=expression, returnByValue=True)
        return result["result"].get("value")

    target = (await call("Target.createTarget", url="about:blank"))["targetId"]
    session["sessionId"] = (await call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
    for domain in ["Page", "Runtime", "Log"]:
        await call(f"{domain}.enable")
    await call("Page.navigate", loads=True, url=address)
    values = []
    for expression in expressions:
        kind, _, rest = expression.partition(":")
        if kind == "get":
            values.append(urllib.request.urlopen(rest).status)
            continue
        if kind == "screen":
            width, scheme, *kind = rest.split()
            size = {"width": int(width), "height": 900, "deviceScaleFactor": 1, "mobile": False}
            await call("Emulation.setDeviceMetricsOverride", **size)
            colours = [{"name": "prefers-color-scheme", "value": scheme}]
            colours += [{"name": "forced-colors", "value": "active" if "forced" in kind else "none"}]
            media = "print" if "print" in kind else ""
            values.append(await call("Emulation.setEmulatedMedia", media=media, features=colours))
            continue
        loads, waits = kind == "go", kind == "wait"
        expression = rest if loads or waits else expression
        values.append(await evaluate(expression, loads))
        async with asyncio.timeout(60):
            while waits and not values[-1]:
                await asyncio.sleep(0.05)
                values[-1] = await evaluate(expression)
    return values + [complaints]


print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2:]))))
