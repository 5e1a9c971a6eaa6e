//! Whether a run over ssh says what a run on this machine says:
//! `WEIR=target/release/weir cargo test --profile quick -p weirlab --test main hosts::agreement:: -- --ignored --nocapture`.
use super::network::Network;
use super::{MACHINES, NAMES, PLAIN, await_clean, said};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// CPU time per request of Weir, over that of nginx: the figure, and its 95 % interval.
fn ratio(mut command: Command, folder: &Path, more: &[&OsStr]) -> [f64; 3] {
    let rounds = std::env::var("ROUNDS").unwrap_or_else(|_| "12".to_owned());
    let weir = std::env::var_os("WEIR").map_or_else(crate::session::weir, PathBuf::from);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).stdin(Stdio::null());
    command.args(["run", "kong/plain-1", "--scheme", "http", "--targets", "nginx,weir", "--rounds", &rounds]);
    command.args(["--no-control", "--rate", "1500", "--format", "json", "--weir"]).arg(weir);
    let output = command.arg("--out").arg(folder).args(more).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cells = answer["cells"].as_array().unwrap();
    let cell = cells.iter().find(|cell| cell["target"] == "weir").unwrap();
    eprintln!("{}", cell["ratio"]);
    ["value", "low", "high"].map(|name| cell["ratio"][name].as_f64().unwrap())
}

#[test]
#[ignore = "prints a paragraph of the documentation; takes minutes when built for speed"]
fn over_ssh_and_a_delay_the_ratio_is_that_of_this_machine() {
    let network = Network::with_loss(&NAMES.map(|name| (name, PLAIN)), Some(0.0));
    let program = env!("CARGO_BIN_EXE_weirlab");
    let here = ratio(Command::new(program), &network.path("local"), &[]);
    let hosts = network.hosts(&MACHINES, "");
    let mut over_ssh = network.command("here", program);
    over_ssh.env("TMPDIR", network.folder.path());
    let there = ratio(over_ssh, &network.path("remote"), &["--hosts".as_ref(), hosts.as_ref()]);
    println!("on this machine: {here:?}; over ssh: {there:?}");
    await_clean(&network);
    assert!(here[1] <= there[0] && there[0] <= here[2], "{there:?} is outside of {here:?}");
    assert!(there[1] <= here[0] && here[0] <= there[2], "{here:?} is outside of {there:?}");
}
