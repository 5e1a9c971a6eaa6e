#!/usr/bin/env python3
"""Checks CycloneDX documents: against the schema, and that each crate is in Cargo.lock with the same hash.

    packaging/test/sbom.py DOCUMENT...
"""
import json, pathlib, sys, tomllib
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# What the program cannot be without: TLS, SQLite, Lua, and the allocator.
EXPECTED = {"rustls", "aws-lc-sys", "libsqlite3-sys", "luajit-src", "weir-proxy"}


def faults(path, locked):
    text = path.read_text()
    if invalid := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        yield f"not valid: {invalid}"
    document = json.loads(text)
    components = document["components"]
    for component in components:
        known = locked.get((component["name"], component["version"]), "not there")
        listed = component.get("hashes", [{"content": None}])[0]["content"]
        if known != listed:
            yield f"{component['bom-ref']}: Cargo.lock has {known}, the document {listed}"
        if not component.get("licenses"):
            yield f"{component['bom-ref']}: no licence"
    if missing := EXPECTED - {component["name"] for component in components}:
        yield f"missing: {', '.join(sorted(missing))}"
    references = {component["bom-ref"] for component in components} | {document["metadata"]["component"]["bom-ref"]}
    if dangling := {to for entry in document["dependencies"] for to in [entry["ref"], *entry["dependsOn"]]} - references:
        yield f"dependencies on what is not listed: {', '.join(sorted(dangling))}"


def main():
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    locked = {(entry["name"], entry["version"]): entry.get("checksum") for entry in lock["package"]}
    found = [f"{path}: {fault}" for path in map(pathlib.Path, sys.argv[1:]) for fault in faults(path, locked)]
    print("\n".join(found) or f"ok: {len(sys.argv) - 1} documents")
    sys.exit(bool(found) or len(sys.argv) == 1)


if __name__ == "__main__":
    main()
