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
    # The documents whose loading has ended. The first blank page may end late, after the page was asked for.
    loaded = set()

    async def receive():
        message = json.loads(await asyncio.wait_for(socket.recv(), 120))
        params = message.get("params", {})
        if message.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            complaints.append(params["entry"]["text"])
        if message.get("method") == "Runtime.exceptionThrown":
            complaints.append(params["exceptionDetails"]["text"])
        if message.get("method") == "Page.lifecycleEvent" and params["name"] == "load":
            loaded.add(params["loaderId"])
        return message

    async def call(method, **params):
        number = next(ids)
        await socket.send(json.dumps({"id": number, "method": method, "params": params, **session}))
        while (message := await receive()).get("id") != number:
            pass
        return message["result"]

    async def evaluate(expression, loads=False):
        before = set(loaded)
        result = await call("Runtime.evaluate", expression=expression, returnByValue=True)
        while loads and loaded == before:
            await receive()
        return result["result"].get("value")

    target = (await call("Target.createTarget", url="about:blank"))["targetId"]
    session["sessionId"] = (await call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
    for domain in ["Page", "Runtime", "Log"]:
        await call(f"{domain}.enable")
    await call("Page.setLifecycleEventsEnabled", enabled=True)
    document = (await call("Page.navigate", url=address))["loaderId"]
    while document not in loaded:
        await receive()
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
        try:
            async with asyncio.timeout(120):
                while waits and not values[-1]:
                    await asyncio.sleep(0.05)
                    values[-1] = await evaluate(expression)
        except TimeoutError:
            page = await evaluate("document.body.innerText")
            sys.exit(f"never true: {expression}, after {values} and {complaints}, in the page: {page}")
    return values + [complaints]


print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2:]))))
