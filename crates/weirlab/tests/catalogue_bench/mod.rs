//! An upstream, a certificate, and targets in front of them, for tests.
#![allow(dead_code, reason = "each test file uses its part")]
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};
use weirlab::scenario::{self, CasePlan, Document, ParityCheck, Scheme};
use weirlab::target::{self, Certificate, Launch, Preparation, Reload, Target};

/// What the upstream answers, before the path that it was asked for.
pub(crate) const UPSTREAM_SAYS: &str = "the upstream was asked for ";

/// The repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A target of the catalogue.
pub(crate) fn target(name: &str) -> Target {
    target::find(&[name.to_owned()], &root()).unwrap().remove(0)
}

/// All cases of scenarios over a scheme, where they are made for it.
pub(crate) fn cases(names: &str, scheme: Scheme) -> Vec<CasePlan> {
    let scenarios = scenario::find(&[names.to_owned()], &root()).unwrap();
    let fitting = scenarios.iter().filter(|scenario| scenario.schemes().contains(&scheme));
    fitting.flat_map(|scenario| scenario.cases(Some(scheme)).unwrap()).collect()
}

/// The gateway, beside the laboratory; built where only the laboratory was.
pub(crate) fn weir() -> PathBuf {
    static BUILT: Once = Once::new();
    let weir = PathBuf::from(env!("CARGO_BIN_EXE_weirlab")).with_file_name("weir");
    BUILT.call_once(|| {
        if !weir.is_file() {
            let build =
                Command::new(env!("CARGO")).args(["build", "--quiet", "--package", "weir-gateway"]).status();
            assert!(build.unwrap().success(), "weir cannot be built");
        }
    });
    weir
}

/// The target's program here; only Envoy, which is in no package of Debian, may be absent.
pub(crate) fn program(target: &Target) -> Option<PathBuf> {
    match target.name.as_str() {
        "weir" => return Some(weir()),
        "direct" => return Some(PathBuf::new()),
        "floor" => return Some(PathBuf::from(env!("CARGO_BIN_EXE_weirlab"))),
        _ => {}
    }
    match target.binary(None) {
        Ok(path) => Some(path),
        Err(error) if ["envoy", "traefik"].contains(&target.name.as_str()) => {
            eprintln!("not tested: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// An upstream and what targets need to be put in front of it.
pub(crate) struct Bench {
    pub(crate) upstream: Vec<SocketAddr>,
    folder: tempfile::TempDir,
    certificate: Certificate,
}

impl Bench {
    /// With an upstream that really answers.
    pub(crate) fn new(listeners: usize) -> Bench {
        let upstream = (0..listeners).map(|_| serve()).collect();
        Bench::over(upstream)
    }

    /// With addresses alone, for configurations that are only looked at.
    pub(crate) fn without_upstream(listeners: usize) -> Bench {
        Bench::over(
            (1..=listeners).map(|port| ([127, 0, 0, 1], u16::try_from(port).unwrap()).into()).collect(),
        )
    }

    /// With an upstream of the test's own.
    pub(crate) fn over(upstream: Vec<SocketAddr>) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        Bench { upstream, folder, certificate: Certificate { certificate, key } }
    }

    /// The declarative file in front of this upstream.
    pub(crate) fn document(&self, case: &CasePlan) -> Document {
        case.document(&self.upstream).unwrap()
    }

    /// The target's files and command in a new folder.
    pub(crate) fn prepare(
        &self,
        target: &Target,
        binary: &Path,
        case: &CasePlan,
        document: &Document,
    ) -> Launch {
        self.prepare_in(target, binary, case, document, false)
    }

    /// The same, for a process or a container.
    pub(crate) fn prepare_in(
        &self,
        target: &Target,
        binary: &Path,
        case: &CasePlan,
        document: &Document,
        container: bool,
    ) -> Launch {
        let folder = tempfile::tempdir_in(self.folder.path()).unwrap().keep();
        let addresses = target::free_addresses([127, 0, 0, 1].into(), target.listeners()).unwrap();
        let preparation = Preparation {
            label: &target.name,
            binary,
            case,
            document,
            folder: &folder,
            addresses: &addresses,
            workers: 1,
            upstream: &self.upstream,
            upstream_tls: &[],
            certificate: &self.certificate,
            control_plane: None,
            container,
        };
        let launch = target.prepare(&preparation).unwrap();
        launch.write_files().unwrap();
        // Tests add files of their own, which a driver would remove.
        Launch { files: Vec::new(), ..launch }
    }

    /// The target, started and listening; none where it is not installed.
    pub(crate) fn start(&self, target: &Target, case: &CasePlan) -> Option<Gateway> {
        let binary = program(target)?;
        let launch = self.prepare(target, &binary, case, &self.document(case));
        Some(Gateway::start(launch, &case.case.scheme))
    }
}

/// A gateway that runs.
pub(crate) struct Gateway {
    pub(crate) launch: Launch,
    pub(crate) process: Option<Child>,
    scheme: String,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Gateway {
    pub(crate) fn start(launch: Launch, scheme: &str) -> Gateway {
        let process = launch.command.split_first().map(|(program, arguments)| {
            let output = std::fs::File::create(launch.folder.join("output")).unwrap();
            Command::new(program)
                .args(arguments)
                .envs(&launch.environment)
                .current_dir(&launch.folder)
                .stdin(Stdio::null())
                .stdout(output.try_clone().unwrap())
                .stderr(output)
                .spawn()
                .unwrap_or_else(|error| panic!("{program}: {error}"))
        });
        let mut gateway = Gateway { launch, process, scheme: scheme.to_owned() };
        gateway.await_ready();
        gateway
    }

    fn await_ready(&mut self) {
        let give_up = Instant::now() + Duration::from_secs(20);
        while !self.is_ready() {
            let ended = self.process.as_mut().and_then(|process| process.try_wait().unwrap());
            assert!(
                ended.is_none() && Instant::now() < give_up,
                "{} {ended:?}: {}",
                self.launch.label,
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_ready(&self) -> bool {
        let Launch { ready, listeners, .. } = &self.launch;
        let answer = ready.status.map(|status| {
            let mut stream = TcpStream::connect(listeners.http.unwrap()).ok()?;
            let path = ready.path.as_ref().unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            answer.starts_with(&format!("HTTP/1.1 {status} ")).then_some(())
        });
        answer.is_none_or(|answer| answer.is_some()) && TcpStream::connect(self.address()).is_ok()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        let listeners = &self.launch.listeners;
        let tls = matches!(self.scheme.as_str(), "https" | "h2");
        if tls { listeners.https.unwrap() } else { listeners.http.unwrap() }
    }

    pub(crate) fn log(&self) -> String {
        let files = self.launch.error_logs.iter().cloned().chain([self.launch.folder.join("output")]);
        files.filter_map(|file| std::fs::read_to_string(file).ok()).collect()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.try_wait().unwrap().is_none())
    }

    /// Has it read its configuration again, and waits until that is over.
    pub(crate) fn reload(&mut self) {
        match self.launch.reload.clone().unwrap() {
            Reload::Signal(name) => {
                let pid = self.process.as_ref().unwrap().id().to_string();
                assert!(Command::new("kill").args([format!("-{name}"), pid]).status().unwrap().success());
            }
            Reload::Command(words) => {
                let mut command = Command::new(&words[0]);
                let output = command.args(&words[1..]).current_dir(&self.launch.folder).output().unwrap();
                assert!(output.status.success(), "{output:?}");
            }
        }
        std::thread::sleep(Duration::from_millis(200));
        self.await_ready();
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.request("GET", path, &[])
    }

    pub(crate) fn ask(&self, check: &ParityCheck) -> Reply {
        self.request(&check.method, &check.path, &check.headers)
    }

    fn request(&self, method: &str, path: &str, headers: &[(String, String)]) -> Reply {
        let url = format!("{}://{}{path}", self.scheme, self.address());
        let mut curl = Command::new("curl");
        curl.args(["-sk", "--http1.1", "--max-time", "10", "-i", "-X", method]).arg(&url);
        for (name, value) in headers {
            curl.args(["-H", &format!("{name}: {value}")]);
        }
        let output = curl.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (head, body) =
            text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{url}: {output:?} {}", self.log()));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_lowercase(), body: body.to_owned() }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let Some(process) = &mut self.process else { return };
        let signal = format!("-{}", self.launch.stop_signal);
        let _ = Command::new("kill").args([&signal, &process.id().to_string()]).status();
        let give_up = Instant::now() + Duration::from_secs(5);
        while process.try_wait().is_ok_and(|ended| ended.is_none()) {
            if Instant::now() > give_up {
                let _ = process.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// An upstream on a thread of its own: every request is answered with the path that it asked for.
fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            std::thread::spawn(move || answer(&client));
        }
    });
    address
}

fn answer(client: &TcpStream) {
    let mut lines = BufReader::new(client).lines();
    while let Some(Ok(first)) = lines.next() {
        let mut length = 0;
        for line in lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()) {
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        assert_eq!(length, 0, "these tests send no bodies");
        let body = format!("{UPSTREAM_SAYS}{}\n", first.split(' ').nth(1).unwrap());
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n", body.len());
        if (&mut &*client).write_all((head + &body).as_bytes()).is_err() {
            return;
        }
    }
}
