#!/usr/bin/env python3
"""Writes an OCI image for each archive of a static binary, and one image of all of them for registries.

    packaging/image.py --out FOLDER ARCHIVE...

An archive is `weir-VERSION-ARCH-linux-musl.tar.gz`, as `make static` writes it. `weir-VERSION-image-ARCH.tar.gz` is for
`docker load` and `podman load`; `weir-VERSION-image.tar` has all architectures, for `skopeo copy --all oci-archive:FILE
docker://REGISTRY/weir:VERSION`. No engine is needed. The image holds the program under the names that Kong's image has,
what it is made of, the authorities of this machine, and the folders that a node writes to. The same input gives the same bytes.
"""
import argparse, gzip, hashlib, io, json, os, pathlib, re, tarfile, time

AUTHORITIES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
KONG = 1000
PASSWD = "root:x:0:0:root:/root:/sbin/nologin\nkong:x:1000:1000:Weir:/usr/local/kong:/sbin/nologin\n"
GROUP = "root:x:0:\nkong:x:1000:\n"
SECOND = 1_000_000_000
# What the archive says about the program, for scanners and readers.
DOCUMENTS = ["LICENSE", "THIRD-PARTY-LICENSES", "weir.cdx.json"]
CONFIG = {
    "User": f"{KONG}:{KONG}",
    # `weir` in a container looks where `kong` does. A WEIR_PREFIX or KONG_PREFIX of the user's takes precedence.
    "Env": ["PATH=/usr/local/bin", "HOME=/usr/local/kong", "KONG_PREFIX=/usr/local/kong"],
    "Entrypoint": ["/docker-entrypoint.sh"],
    "Cmd": ["kong", "docker-start"],
    "WorkingDir": "/",
    "ExposedPorts": {"8000/tcp": {}, "8443/tcp": {}, "8007/tcp": {}},
    "StopSignal": "SIGQUIT",
    "Healthcheck": {"Test": ["CMD", "kong", "health"], "Interval": 10 * SECOND, "Timeout": 10 * SECOND, "Retries": 3},
}


class Layout:
    """An OCI image layout, in memory: blobs by their digests."""

    def __init__(self):
        self.blobs = {}

    def blob(self, media_type, content):
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def json(self, media_type, value):
        return self.blob(media_type, json.dumps(value, indent=1).encode())

    def write(self, index, path, created, others=()):
        files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index, indent=1).encode()}
        files.update(self.blobs)
        files.update(others)
        content = tar([(name, 0o644, 0, data) for name, data in files.items()], created)
        path.write_bytes(gzip.compress(content, 1, mtime=0) if path.suffix == ".gz" else content)


def tar(entries, created):
    """Entries are (name, mode, owner, content): bytes of a file, the target of a link, or None for a folder."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as to:
        for name, mode, owner, content in entries:
            entry = tarfile.TarInfo(name)
            entry.mode, entry.uid, entry.gid, entry.mtime = mode, owner, owner, created
            if content is None:
                entry.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
            else:
                entry.size = len(content)
            to.addfile(entry, io.BytesIO(content) if isinstance(content, bytes) else None)
    return archive.getvalue()


def root(files):
    """What is in the image, of the files of an archive by their names."""
    folders = ["etc", "etc/ssl", "etc/ssl/certs", "usr", "usr/local", "usr/local/bin",
               "usr/share", "usr/share/doc", "usr/share/doc/weir"]
    return [(folder, 0o755, 0, None) for folder in folders] + [
        ("tmp", 0o1777, 0, None),
        # The node's own folder, and where a fleet has its certificate.
        ("usr/local/kong", 0o755, KONG, None),
        ("cluster", 0o755, KONG, None),
        ("etc/passwd", 0o644, 0, PASSWD.encode()),
        ("etc/group", 0o644, 0, GROUP.encode()),
        ("etc/ssl/certs/ca-certificates.crt", 0o644, 0, AUTHORITIES.read_bytes()),
        ("usr/local/bin/weir", 0o755, 0, files["weir"]),
        ("usr/local/bin/kong", 0o777, 0, "weir"),
        ("docker-entrypoint.sh", 0o777, 0, "/usr/local/bin/weir"),
    ] + [document(name, files[name]) for name in DOCUMENTS]


def document(name, content):
    """The texts of all licences are compressed, because they are 600 KB that few read."""
    if name == "THIRD-PARTY-LICENSES":
        name, content = f"{name}.gz", gzip.compress(content, 9, mtime=0)
    return f"usr/share/doc/weir/{name}", 0o644, 0, content


def image(layout, files, architecture, version, created):
    """Adds an image to a layout; returns its descriptor, and what `docker load` of older engines reads."""
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(created))
    content = tar(root(files), created)
    layer = layout.blob("application/vnd.oci.image.layer.v1.tar+gzip", gzip.compress(content, 9, mtime=0))
    labels = {
        "org.opencontainers.image.title": "weir",
        "org.opencontainers.image.description": "An API gateway that reads Kong's configuration",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    config = layout.json("application/vnd.oci.image.config.v1+json", {
        "created": when, "architecture": architecture, "os": "linux", "config": CONFIG | {"Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]},
        "history": [{"created": when, "created_by": "packaging/image.py"}],
    })
    manifest = layout.json("application/vnd.oci.image.manifest.v1+json", {
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": [layer],
    })
    manifest["platform"] = {"architecture": architecture, "os": "linux"}
    path = lambda blob: "blobs/" + blob["digest"].replace(":", "/")
    return manifest, {"Config": path(config), "RepoTags": [f"weir:{version}", "weir:latest"], "Layers": [path(layer)]}


def index(manifests, **annotations):
    return {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [manifest | ({"annotations": annotations} if annotations else {}) for manifest in manifests]}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    arguments.add_argument("archives", type=pathlib.Path, nargs="+", metavar="ARCHIVE")
    options = arguments.parse_args()
    created = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    everything, manifests = Layout(), []
    for archive in options.archives:
        version, machine = re.fullmatch(r"weir-(.+)-(x86_64|aarch64)-linux-musl\.tar\.gz", archive.name).groups()
        architecture = ARCHITECTURES[machine]
        folder = archive.name.removesuffix(".tar.gz")
        with tarfile.open(archive) as packed:
            files = {name: packed.extractfile(f"{folder}/{name}").read() for name in ["weir", *DOCUMENTS]}
        single = Layout()
        manifest, for_docker = image(single, files, architecture, version, created)
        everything.blobs.update(single.blobs)
        manifests.append(manifest)
        path = options.out / f"weir-{version}-image-{architecture}.tar.gz"
        named = {"io.containerd.image.name": f"docker.io/library/weir:{version}", "org.opencontainers.image.ref.name": version}
        single.write(index([manifest], **named), path, created, [("manifest.json", json.dumps([for_docker]).encode())])
        print(path)
    both = everything.json("application/vnd.oci.image.index.v1+json", index(manifests))
    path = options.out / f"weir-{version}-image.tar"
    everything.write(index([both], **{"org.opencontainers.image.ref.name": version}), path, created)
    print(path)


if __name__ == "__main__":
    main()
