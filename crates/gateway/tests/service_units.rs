//! The units for systemd in `packaging` and `examples/fleet`: what they let the program do, and that what they name is what
//! the packages install and the program uses. `packaging/test/package` runs the packaged one under systemd.
use crate::harness::{eventually, weir};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use tempfile::TempDir;

const PACKAGED: &str = "packaging/weir.service";
const UNITS: [&str; 3] =
    [PACKAGED, "examples/fleet/weir-control-plane.service", "examples/fleet/weir-data-plane.service"];
/// systemd calls a unit with up to 2.5 "OK" on its scale from 0 to 10.
const MAX_EXPOSURE: f64 = 2.5;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The values of a unit's directives, in the order of the file.
fn directives(unit: &str) -> HashMap<String, Vec<String>> {
    let mut directives: HashMap<String, Vec<String>> = HashMap::new();
    for line in fs::read_to_string(repository(unit)).unwrap().lines() {
        if let Some((name, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            directives.entry(name.to_owned()).or_default().push(value.to_owned());
        }
    }
    directives
}

/// The only value of a directive of the packaged unit.
#[track_caller]
fn packaged(name: &str) -> String {
    let values = directives(PACKAGED).remove(name).unwrap_or_default();
    assert_eq!(values.len(), 1, "{name}: {values:?}");
    values.concat()
}

/// What a package installs, by its destination.
fn installed(format: &str) -> HashMap<String, String> {
    let manifest: toml::Value =
        toml::from_str(&fs::read_to_string(repository("crates/gateway/Cargo.toml")).unwrap()).unwrap();
    let assets = manifest["package"]["metadata"][format]["assets"].as_array().unwrap();
    let pair = |asset: &toml::Value| match asset.as_array() {
        Some(fields) => (fields[1].clone(), fields[0].clone()),
        None => (asset["dest"].clone(), asset["source"].clone()),
    };
    let text = |value: toml::Value| value.as_str().unwrap().trim_start_matches("../").to_owned();
    let slashed = |text: String| format!("/{}", text.trim_start_matches('/'));
    assets.iter().map(pair).map(|(to, from)| (slashed(text(to)), text(from))).collect()
}

#[test]
fn systemd_finds_that_they_may_do_little() {
    for unit in UNITS {
        let output = Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager"])
            .arg(repository(unit))
            .output()
            .expect("systemd-analyze: `apt install systemd`");
        let report = String::from_utf8_lossy(&output.stdout);
        let level =
            report.split("Overall exposure level for ").nth(1).and_then(|rest| rest.split(": ").nth(1));
        let level: f64 = level.and_then(|level| level.split(' ').next()?.parse().ok()).unwrap_or_else(|| {
            panic!("no level for {unit}: {report}{}", String::from_utf8_lossy(&output.stderr))
        });
        assert!(level <= MAX_EXPOSURE, "{unit}: {level}\n{report}");
    }
}

#[test]
fn the_packaged_unit_names_what_packages_install() {
    let start = packaged("ExecStart");
    let words: Vec<_> = start.split(' ').collect();
    let [program, "run", "--settings", settings] = words[..] else { panic!("{start}") };
    assert_eq!(packaged("ExecReload"), format!("{program} reload"));
    for format in ["deb", "generate-rpm"] {
        let installed = installed(format);
        assert_eq!(installed[program], "target/release/package/weir", "{format}");
        assert_eq!(installed[settings], "packaging/weir.toml", "{format}");
    }
    assert_eq!(packaged("Environment"), format!("WEIR_PREFIX=/var/lib/{}", packaged("StateDirectory")));
    let logs = format!("/var/log/{}/", packaged("LogsDirectory"));
    for file in ["packaging/weir.toml", "packaging/weir.logrotate"] {
        let text = fs::read_to_string(repository(file)).unwrap();
        assert!(text.contains(&logs), "{file} does not name {logs}");
    }
}

/// A node that the packaged unit's `ExecStart` runs, with the packaged settings, and a prefix and ports of its own.
struct Served {
    folder: TempDir,
    node: Child,
}

impl Served {
    fn start(variables: &[(&str, &str)]) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let mut run = weir();
        for argument in arguments("ExecStart") {
            let settings = || repository("packaging/weir.toml").display().to_string();
            run.arg(if argument == "/etc/weir/weir.toml" { settings() } else { argument });
        }
        for listener in ["PROXY", "ADMIN", "ADMIN_GUI", "STATUS"] {
            run.env(format!("WEIR_{listener}_LISTEN"), "127.0.0.1:0");
        }
        run.env("WEIR_PREFIX", folder.path().join("prefix")).envs(variables.iter().copied());
        run.current_dir(folder.path()).stdout(fs::File::create(folder.path().join("started")).unwrap());
        let node = run.stderr(fs::File::create(folder.path().join("log")).unwrap()).spawn().unwrap();
        let mut served = Served { folder, node };
        eventually("it serves", || {
            assert!(served.node.try_wait().unwrap().is_none(), "{}", served.read("log"));
            served.read("started").contains("\"pid\"")
        });
        served
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    #[track_caller]
    fn command(&self, arguments: &[String]) {
        let prefix = self.folder.path().join("prefix");
        let output = weir().args(arguments).env("WEIR_PREFIX", prefix).output().unwrap();
        assert!(output.status.success(), "{output:?}\n{}", self.read("log"));
    }

    fn quit(&mut self) {
        self.command(&["quit".to_owned()]);
        assert!(self.node.wait().unwrap().success(), "{}", self.read("log"));
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.node.kill();
        let _ = self.node.wait();
    }
}

/// What the program is started with by a directive of the packaged unit.
fn arguments(directive: &str) -> Vec<String> {
    packaged(directive).split(' ').skip(1).map(str::to_owned).collect()
}

#[test]
fn the_packaged_unit_starts_a_node_that_writes_to_its_prefix_alone() {
    let mut served = Served::start(&[]);
    served.quit();
    let entries = fs::read_dir(served.folder.path()).unwrap();
    let mut written: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    written.sort();
    assert_eq!(written, ["log", "prefix", "started"]);
    assert!(served.folder.path().join("prefix/weir.sqlite").exists());
}

#[test]
fn the_packaged_unit_reloads_a_declarative_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "_format_version: \"3.0\"\n").unwrap();
    let mut served = Served::start(&[
        ("WEIR_DECLARATIVE_CONFIG", file.path().to_str().unwrap()),
        ("WEIR_DATABASE", "off"),
    ]);
    served.command(&arguments("ExecReload"));
    served.quit();
}
