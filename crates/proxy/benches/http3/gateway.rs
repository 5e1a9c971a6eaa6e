//! The gateway under test, and what it spends.
use crate::Given;
use std::cell::Cell;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Valgrind takes long.
const START_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    process: Child,
    folder: TempDir,
    callgrind: bool,
    /// So many times callgrind was asked what it has counted.
    dumps: Cell<usize>,
}

impl Gateway {
    /// Starts it, and waits until it listens.
    pub(crate) async fn start(given: &Given, upstream: u16) -> Gateway {
        let folder = tempfile::tempdir().expect("a folder");
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|it| it.local_addr())
            .expect("a port")
            .port();
        let config = folder.path().join("kong.yml");
        let text = format!(
            "_format_version: \"3.0\"\nservices:\n- {{name: s, url: \"http://127.0.0.1:{upstream}\", \
             routes: [{{name: r, paths: [\"/\"]}}]}}\n"
        );
        fs::write(&config, text).expect("a file");
        let process = command(given, folder.path())
            .args(["run", "--config"])
            .arg(config)
            .args(settings(given, folder.path(), port))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the gateway");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let gateway = Gateway { address, process, folder, callgrind: given.callgrind, dumps: Cell::new(0) };
        let begin = Instant::now();
        while tokio::net::TcpStream::connect(address).await.is_err() {
            assert!(begin.elapsed() < START_TIMEOUT, "the gateway does not listen on {address}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        gateway
    }

    /// What it has spent so far: instructions, or nanoseconds.
    pub(crate) fn cost(&self) -> f64 {
        if self.callgrind { self.instructions() } else { self.nanoseconds() }
    }

    fn nanoseconds(&self) -> f64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id())).expect("the process");
        let times = tasks.map_while(Result::ok).map(|task| {
            let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            text.split(' ').next().and_then(|time| time.parse::<f64>().ok()).unwrap_or_default()
        });
        times.sum()
    }

    /// Of all dumps so far.
    fn instructions(&self) -> f64 {
        let pid = self.process.id().to_string();
        let dumped = Command::new("callgrind_control").args(["--dump", &pid]).output().expect("valgrind");
        assert!(dumped.status.success(), "callgrind_control: {dumped:?}");
        self.dumps.set(self.dumps.get() + 1);
        let begin = Instant::now();
        loop {
            let totals = totals(self.folder.path());
            if totals.len() >= self.dumps.get() {
                return totals.into_iter().sum();
            }
            assert!(begin.elapsed() < START_TIMEOUT, "callgrind has written nothing");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Of each file that callgrind has written.
fn totals(folder: &Path) -> Vec<f64> {
    let files = fs::read_dir(folder).expect("the folder").map_while(Result::ok);
    let dumps = files.filter(|file| file.file_name().to_string_lossy().starts_with("callgrind.out."));
    let total =
        |text: String| text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok());
    dumps.filter_map(|file| total(fs::read_to_string(file.path()).ok()?)).collect()
}

fn command(given: &Given, folder: &Path) -> Command {
    if !given.callgrind {
        return Command::new(&given.weir);
    }
    let mut command = Command::new("valgrind");
    let out = folder.join("callgrind.out.%p");
    command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", out.display()));
    command.arg(&given.weir);
    command
}

fn settings(given: &Given, folder: &Path, port: u16) -> Vec<String> {
    let prefix = folder.join("prefix");
    let own = [
        format!("prefix={}", prefix.display()),
        "workers=1".into(),
        "admin_listen=off".into(),
        "status_listen=off".into(),
        "keepalive_requests=0".into(),
        "upstream_keepalive_max_requests=0".into(),
        "client_max_body_size=0".into(),
        format!("proxy_listen=127.0.0.1:{port} ssl http2, 127.0.0.1:{port} quic"),
    ];
    let settings = own.iter().chain(&given.settings);
    settings.flat_map(|setting| ["--set".to_owned(), setting.clone()]).collect()
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
