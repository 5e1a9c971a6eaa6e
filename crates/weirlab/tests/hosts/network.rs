//! Machines for tests: network namespaces on one switch, each with an sshd of its own. Nothing of this machine's own network
//! is touched, and all of it is gone when the test ends.
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than an agent waits for a session that is silent.
const TIMEOUT: Duration = Duration::from_secs(90);
/// One way; twice that is a round trip within a zone of a cloud.
pub(super) const DELAY_US: u32 = 100;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A network with machines. The first of its namespaces is the switch, the second the machine that `weirlab` is called on.
pub(super) struct Network {
    pub(super) folder: tempfile::TempDir,
    id: String,
    namespaces: Vec<String>,
    sshds: Vec<Child>,
    relay: Option<Child>,
}

/// How a machine differs from a plain one.
#[derive(Clone, Copy, Default)]
pub(super) struct Oddity {
    /// Environment variables of what ssh starts there, before the usual ones; `$F` is the network's folder.
    pub(super) environment: &'static str,
    /// Shell commands before its sshd starts, with the same `$F`.
    pub(super) before: &'static str,
}

impl Network {
    /// Machines of these names; addresses are given in their order, from 10.77.0.11 on.
    pub(super) fn new(machines: &[(&str, Oddity)]) -> Network {
        Network::with_loss(machines, None)
    }

    /// With a loss, frames are delayed and lost by a program, whatever this kernel can do.
    pub(super) fn with_loss(machines: &[(&str, Oddity)], loss: Option<f64>) -> Network {
        assert!(
            rustix::process::geteuid().is_root(),
            "network namespaces need root: run `sudo -E env PATH=\"$PATH\" cargo test -p weirlab --test main hosts`"
        );
        let id = format!("wl{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = tempfile::tempdir().unwrap();
        let mut network = Network { folder, id, namespaces: Vec::new(), sshds: Vec::new(), relay: None };
        network.keys();
        network.namespace("switch");
        network.within("switch", "ip link add br0 type bridge && ip link set br0 up");
        network.join("here", 10);
        (11..).zip(machines).for_each(|(address, (name, _))| network.join(name, address));
        match loss {
            Some(loss) => network.relay(loss, machines.len()),
            None => network.delay(machines),
        }
        for (address, (name, oddity)) in (11..).zip(machines) {
            network.sshd(name, address, *oddity);
        }
        network
    }

    fn delay(&self, machines: &[(&str, Oddity)]) {
        let names = machines.iter().map(|(name, _)| *name).chain(["here"]);
        let command = format!("tc qdisc add dev eth0 root netem delay {DELAY_US}us");
        if !names.fold(true, |all, name| all & self.try_within(name, &command)) {
            eprintln!("this machine has no tc with netem: the network of this test has no delay");
        }
    }

    /// Puts a program in the place of the bridge.
    fn relay(&mut self, loss: f64, machines: usize) {
        self.within("switch", "ip link delete br0");
        let mut command = self.command("switch", "/usr/bin/python3");
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hosts/relay.py"));
        command.args([DELAY_US.to_string(), loss.to_string()]);
        command.args((10..=10 + machines).map(|address| format!("p{address}")));
        let mut relay = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(relay.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.relay = Some(relay);
        assert_eq!(line, "ready\n", "relay.py has not begun");
    }

    fn keys(&self) {
        for name in ["host", "user", "other"] {
            let file = self.path(name);
            run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file));
        }
        fs::copy(self.path("user.pub"), self.path("authorized_keys")).unwrap();
    }

    fn namespace(&mut self, name: &str) {
        let full = self.full(name);
        run(Command::new("ip").args(["netns", "add", &full]));
        self.namespaces.push(full);
        self.within(name, "ip link set lo up");
    }

    /// A namespace with a cable to the switch.
    fn join(&mut self, name: &str, address: usize) {
        self.namespace(name);
        let (switch, machine) = (self.full("switch"), self.full(name));
        let port = format!("p{address}");
        run(Command::new("ip")
            .args(["link", "add", &port, "netns", &switch, "type", "veth"])
            .args(["peer", "name", "eth0", "netns", &machine]));
        self.within("switch", &format!("ip link set {port} master br0 up"));
        self.within(name, &format!("ip address add 10.77.0.{address}/24 dev eth0 && ip link set eth0 up"));
    }

    fn sshd(&mut self, name: &str, address: usize, oddity: Oddity) {
        let folder = self.folder.path().display().to_string();
        let temporary = self.temporary(name);
        fs::create_dir(&temporary).unwrap();
        fs::create_dir_all("/run/sshd").unwrap();
        let config = format!(
            "Port 22\nListenAddress 10.77.0.{address}\nHostKey {folder}/host\nPidFile none\nUsePAM no\nStrictModes no\n\
             AuthorizedKeysFile {folder}/authorized_keys\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n\
             MaxStartups 100\nSetEnv TMPDIR={} {} XDG_CACHE_HOME={folder}/cache\n",
            temporary.display(),
            oddity.environment.replace("$F", &folder),
        );
        let file = self.path(&format!("sshd_config-{name}"));
        fs::write(&file, config).unwrap();
        let known = format!("10.77.0.{address} {}", fs::read_to_string(self.path("host.pub")).unwrap());
        let all = fs::read_to_string(self.path("known_hosts")).unwrap_or_default() + &known;
        fs::write(self.path("known_hosts"), all).unwrap();
        let before = if oddity.before.is_empty() { ":" } else { oddity.before };
        let script = format!("F={folder}; {before} && exec /usr/sbin/sshd -D -e -f {}", file.display());
        let log = fs::File::create(self.path(&format!("sshd-{name}.log"))).unwrap();
        let mut command = self.command(name, "sh");
        command.args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.sshds.push(command.spawn().unwrap());
        let listens = || self.try_within(name, "ss -Hltn 'sport = :22' | grep -q .");
        await_true("sshd listens", listens);
    }

    /// A file of this test.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where programs of a machine keep temporary files.
    pub(super) fn temporary(&self, name: &str) -> PathBuf {
        self.path(&format!("tmp-{name}"))
    }

    fn full(&self, name: &str) -> String {
        format!("{}-{name}", self.id)
    }

    /// A program on a machine.
    pub(super) fn command(&self, name: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.full(name), program]);
        command
    }

    fn try_within(&self, name: &str, script: &str) -> bool {
        let mut command = self.command(name, "sh");
        command.args(["-c", script]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().unwrap().success()
    }

    fn within(&self, name: &str, script: &str) {
        run(self.command(name, "sh").args(["-c", script]));
    }

    /// What a command on a machine says.
    pub(super) fn output(&self, name: &str, script: &str) -> String {
        let output = self.command(name, "sh").args(["-c", script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The processes of a machine, with their command lines, but for its sshd.
    pub(super) fn processes(&self, name: &str) -> Vec<(u32, String)> {
        let output = Command::new("ip").args(["netns", "pids", &self.full(name)]).output().unwrap();
        let listed = String::from_utf8(output.stdout).unwrap();
        let sshds: Vec<u32> = self.sshds.iter().map(Child::id).collect();
        let pids = listed.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok());
        pids.filter(|pid| !sshds.contains(pid))
            .filter_map(|pid| {
                let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                (!line.trim().is_empty()).then_some((pid, line))
            })
            .collect()
    }

    /// The hosts file with a machine for each role, and more lines for one of them.
    pub(super) fn hosts(&self, machines: &[(&str, usize, &str)], more: &str) -> PathBuf {
        let mut text = "[prepare]\nload_average = 1000.0\nwait = \"1s\"\n".to_owned();
        for (name, address, roles) in machines {
            let address = format!("10.77.0.{address}");
            text += &format!(
                "\n[hosts.{name}]\nroles = [{roles}]\naddress = \"{address}\"\nuser = \"root\"\n\
                 identity_file = \"user\"\nknown_hosts = \"known_hosts\"\ninternal_address = \"{address}\"\n"
            );
        }
        let file = self.path("hosts.toml");
        fs::write(&file, text + more).unwrap();
        file
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for child in self.sshds.iter_mut().chain(&mut self.relay) {
            let _ = child.kill();
            let _ = child.wait();
        }
        for namespace in &self.namespaces {
            // What a failed test has left there.
            let output = Command::new("ip").args(["netns", "pids", namespace]).output();
            for pid in String::from_utf8_lossy(&output.unwrap().stdout).split_whitespace() {
                let _ = Command::new("kill").args(["-9", pid]).status();
            }
            let _ = Command::new("ip").args(["netns", "delete", namespace]).status();
        }
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Waits until something is so.
pub(super) fn await_true(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < TIMEOUT, "{what}: not within {TIMEOUT:?}");
        thread::sleep(Duration::from_millis(10));
    }
}
