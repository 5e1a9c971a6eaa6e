#!/usr/bin/env python3
"""Lists what programs are made of as CycloneDX 1.6, and collects the licence texts of all of it.

    packaging/sbom.py --target x86_64-unknown-linux-gnu --package weir-gateway --out weir.cdx.json --licenses LICENSES

What counts is what is linked for the target: `cargo tree` names the crates, with the features of a release. A build
dependency counts if it brings C sources that are linked. The same sources and SOURCE_DATE_EPOCH give the same bytes.
"""
import argparse, hashlib, json, os, pathlib, re, subprocess, time, tomllib, urllib.parse, uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://cyclonedx.org/")
LICENSE_FILE = re.compile(r"(licen[sc]e|copying|copyright|notice|unlicense)([-._].*)?", re.IGNORECASE)
# Build dependencies that bring sources, by whether these are linked: mlua-sys names both, and builds LuaJIT alone.
SOURCES = {"luajit-src": True, "lua-src": False}
SOURCE_FILE = re.compile(r"\.(rs|c|h|py|go|pl|sh|toml|html?|json)$", re.IGNORECASE)


def cargo(*arguments):
    command = [os.environ.get("CARGO", "cargo"), *arguments, "--locked"]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def tree(package, target, kinds):
    """The (name, version) of a package and of what it depends on."""
    lines = cargo("tree", "--package", package, "--edges", kinds, "--target", target, "--prefix", "none", "--format", "{p}")
    return {tuple(line.split()[:2]) for line in lines.splitlines() if line}


def linked(packages, target):
    """The (name, version) of everything that becomes part of the programs."""
    found = set()
    for package in packages:
        found |= tree(package, target, "normal,no-proc-macro")
        sources = {it for it in tree(package, target, "normal,build,no-proc-macro") if it[0].endswith("-src")}
        if unknown := {name for name, _ in sources} - SOURCES.keys():
            raise SystemExit(f"{', '.join(unknown)}: add to SOURCES in packaging/sbom.py whether what it brings is linked")
        found |= {(name, version) for name, version in sources if SOURCES[name]}
    return {(name, version.removeprefix("v")) for name, version in found}


def purl(package):
    return f"pkg:cargo/{package['name']}@{urllib.parse.quote(package['version'])}"


def expression(package):
    """The SPDX expression; before there were any, crates wrote a slash for `OR`."""
    return re.sub(r"\s*/\s*", " OR ", package["license"] or "")


def component(package, checksums, kind="library"):
    entry = {"type": kind, "bom-ref": purl(package), "name": package["name"], "version": package["version"]}
    if package["description"]:
        entry["description"] = " ".join(package["description"].split())
    if checksum := checksums.get((package["name"], package["version"])):
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["license"]:
        entry["licenses"] = [{"expression": expression(package)}]
    entry["purl"] = purl(package)
    if package["repository"]:
        entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return entry


def bill(packages, graph, tops, target):
    """The document, for packages in the order of their names."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    checksums = {(entry["name"], entry["version"]): entry.get("checksum") for entry in lock["package"]}
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    version = next(package["version"] for package in packages if package["name"] in tops)
    programs = [package for package in packages if package["name"] in tops]
    subject = {"type": "application", "bom-ref": f"weir-{version}-{target}", "name": "weir", "version": version,
               "licenses": [{"expression": "Apache-2.0"}], "properties": [{"name": "cargo:target", "value": target}]}
    dependencies = [{"ref": subject["bom-ref"], "dependsOn": [purl(program) for program in programs]}]
    dependencies += [{"ref": purl(package), "dependsOn": graph[package["id"]]} for package in packages]
    document = {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"timestamp": created, "component": subject,
                     "tools": {"components": [{"type": "application", "name": "packaging/sbom.py", "version": version}]}},
        "components": [component(package, checksums, "application" if package in programs else "library") for package in packages],
        "dependencies": dependencies,
    }
    serial = uuid.uuid5(NAMESPACE, json.dumps(document, sort_keys=True))
    return {"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "serialNumber": f"urn:uuid:{serial}"} | document


def edges(node, by_id):
    """What a crate depends on, without what only its tests do."""
    return sorted(purl(by_id[to["pkg"]]) for to in node["deps"]
                  if to["pkg"] in by_id and any(kind["kind"] != "dev" for kind in to["dep_kinds"]))


def license_files(package):
    """The texts beside a crate's manifest; of crates with C sources, those in their folders as well."""
    folder = pathlib.Path(package["manifest_path"]).parent
    paths = folder.rglob("*") if package["name"].endswith(("-sys", "-src")) else folder.iterdir()
    wanted = [path for path in paths if LICENSE_FILE.fullmatch(path.name) and not SOURCE_FILE.search(path.name)]
    if package["license_file"]:
        wanted.append(folder / package["license_file"])
    return sorted({path.resolve() for path in wanted if path.is_file()})


def texts(packages):
    """Every licence text once, after the names of the crates that carry it."""
    carriers, contents = {}, {}
    for package in packages:
        for path in license_files(package):
            content = path.read_text(errors="replace").strip()
            key = hashlib.sha256(" ".join(content.split()).encode()).hexdigest()
            contents.setdefault(key, content)
            carriers.setdefault(key, []).append(f"{package['name']} {package['version']}")
    return [(sorted(set(carriers[key])), contents[key]) for key in sorted(carriers, key=lambda key: (min(carriers[key]), key))]


def licenses(packages):
    parts = ["Weir is made of the software below. The first list names each part, its licence, and where its sources are;\n"
             "the licence texts follow, as their authors publish them.\n"]
    parts += [f"{package['name']} {package['version']}: {expression(package) or 'see its text'}"
              f"{', ' + package['repository'] if package['repository'] else ''}" for package in packages]
    for carriers, content in texts(packages):
        parts.append(f"\n{'=' * 80}\n{', '.join(carriers)}\n{'=' * 80}\n\n{content}")
    return "\n".join(parts) + "\n"


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--target", required=True, help="the target triple")
    arguments.add_argument("--package", action="append", required=True, help="a crate with a program")
    arguments.add_argument("--out", type=pathlib.Path, help="where to write the CycloneDX document")
    arguments.add_argument("--licenses", type=pathlib.Path, help="where to write the licence texts")
    options = arguments.parse_args()
    metadata = json.loads(cargo("metadata", "--format-version", "1", "--filter-platform", options.target))
    names = linked(options.package, options.target)
    packages = [package for package in metadata["packages"] if (package["name"], package["version"]) in names]
    packages.sort(key=lambda package: (package["name"], package["version"]))
    by_id = {package["id"]: package for package in packages}
    graph = {node["id"]: edges(node, by_id) for node in metadata["resolve"]["nodes"]}
    if options.out:
        document = bill(packages, graph, options.package, options.target)
        options.out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    if options.licenses:
        third_party = [package for package in packages if package["source"]]
        options.licenses.write_text(licenses(third_party))


if __name__ == "__main__":
    main()
