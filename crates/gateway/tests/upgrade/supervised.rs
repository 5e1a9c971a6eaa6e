//! Upgrades of nodes that something else supervises, and of programs that are called through a link.
use super::{Node, OK, program};
use crate::harness::{Gateway, Upstream, one_route};
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// A program that runs `weir` as systemd runs the main process of a unit.
fn main_process_of_a_unit(folder: &Path) -> PathBuf {
    let weir = env!("CARGO_BIN_EXE_weir");
    program(folder, &format!("export SYSTEMD_EXEC_PID=$$\nexec {weir} \"$@\"")).into()
}

#[test]
fn the_main_process_of_a_unit_is_replaced_if_systemd_hears_of_the_new_one() {
    let upstream = Upstream::answering(OK);
    let folder = tempfile::tempdir().unwrap();
    let program = main_process_of_a_unit(folder.path());
    let builder = || Gateway::builder(&one_route(upstream.address)).binary(program.clone());
    let node = Node::start(builder());
    let said = node.refused(&[]);
    assert!(said.contains("Type=notify"), "{said}");
    assert_eq!(node.gateway.get("/").text(), "hi");
    assert_eq!(node.gateway.status("/status/ready").status, 200);
    let socket = folder.path().join("notify");
    let _manager = UnixDatagram::bind(&socket).unwrap();
    let node = Node::start(builder().env("NOTIFY_SOCKET", socket.to_str().unwrap()));
    node.upgrade();
    assert_eq!(node.gateway.get("/").text(), "hi");
}

#[test]
fn the_new_program_is_the_one_that_the_link_leads_to_by_then() {
    // Beside the program, because hard links do not leave a file system.
    let weir = Path::new(env!("CARGO_BIN_EXE_weir"));
    let folder = tempfile::tempdir_in(weir.parent().unwrap()).unwrap();
    let path = folder.path().canonicalize().unwrap();
    for version in ["v1", "v2"] {
        fs::create_dir(path.join(version)).unwrap();
        fs::hard_link(weir, path.join(version).join("weir")).unwrap();
    }
    let current = path.join("current");
    let switch_to = |version: &str| {
        let next = path.join("next");
        symlink(version, &next).unwrap();
        fs::rename(next, &current).unwrap();
    };
    switch_to("v1");
    let node = Node::start(Gateway::builder("_format_version: \"3.0\"\n").binary(current.join("weir")));
    let running = || fs::read_link(format!("/proc/{}/exe", node.pid())).unwrap();
    assert_eq!(running(), path.join("v1/weir"));
    for version in ["v2", "v1"] {
        switch_to(version);
        node.upgrade();
        assert_eq!(running(), path.join(version).join("weir"));
        assert_eq!(node.gateway.get("/").status, 404);
    }
}
