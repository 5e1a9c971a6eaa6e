//! The server that a gateway keeps counters or its configuration in: Redis or PostgreSQL, as a process of the run.
use super::FaultError;
use super::scenario::ProcessAct;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(10);
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Who runs PostgreSQL, which refuses to run as root.
const POSTGRES_USER: &str = "postgres";

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Redis,
    Postgres,
}

/// A server, whether or not it runs at the moment. Dropping it ends it.
pub(super) struct Store {
    kind: Kind,
    folder: PathBuf,
    pub(super) address: SocketAddr,
    child: Option<Child>,
}

impl Store {
    pub(super) fn start(kind: Kind, folder: &Path, port: u16) -> Result<Self, FaultError> {
        let folder = folder.join("store");
        fs::create_dir_all(&folder).map_err(|error| FaultError::system("a folder cannot be made", error))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut store = Self { kind, folder, address, child: None };
        if kind == Kind::Postgres {
            store.initialise()?;
        }
        store.spawn()?;
        Ok(store)
    }

    /// Makes a cluster of databases, of a user who may do everything without a password.
    fn initialise(&self) -> Result<(), FaultError> {
        if rustix::process::geteuid().is_root() {
            let parents = self.folder.ancestors().take_while(|at| at.starts_with(std::env::temp_dir()));
            for parent in parents.filter(|at| *at != std::env::temp_dir()) {
                run(Command::new("chmod").arg("o+x").arg(parent))?;
            }
            run(Command::new("chown").arg(POSTGRES_USER).arg(&self.folder))?;
        }
        let mut initdb = self.as_user(&postgres("initdb")?);
        run(initdb.args(["--auth", "trust", "--username", "weir", "--no-sync", "--pgdata"]).arg(self.data()))
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn as_user(&self, program: &Path) -> Command {
        if !rustix::process::geteuid().is_root() {
            return Command::new(program);
        }
        // `setpriv` becomes the program, so that signals reach it.
        let mut command = Command::new("setpriv");
        let user = format!("--reuid={POSTGRES_USER}");
        command.args([&user, "--regid=postgres", "--clear-groups"]).arg(program);
        command
    }

    fn command(&self) -> Result<Command, FaultError> {
        let port = self.address.port().to_string();
        Ok(match self.kind {
            Kind::Redis => {
                let mut command = Command::new("redis-server");
                command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
                command
            }
            Kind::Postgres => {
                let mut command = self.as_user(&postgres("postgres")?);
                command.args(["-p", &port, "-h", "127.0.0.1", "-c", "unix_socket_directories=", "-D"]);
                command.arg(self.data());
                command
            }
        })
    }

    fn spawn(&mut self) -> Result<(), FaultError> {
        let started = File::create(self.folder.with_extension("log")).and_then(|log| {
            let mut command = self.command().map_err(io::Error::other)?;
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
            command.current_dir(&self.folder).process_group(0).spawn()
        });
        self.child = Some(started.map_err(|error| FaultError::system("the store cannot be started", error))?);
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.is_ready()? {
            if Instant::now() > deadline {
                return Err(FaultError::lost("the store"));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// PostgreSQL accepts connections before it serves them.
    fn is_ready(&self) -> Result<bool, FaultError> {
        if self.kind == Kind::Redis {
            return Ok(TcpStream::connect(self.address).is_ok());
        }
        let port = self.address.port().to_string();
        let mut asked = Command::new(postgres("pg_isready")?);
        let asked = asked.args(["--host", "127.0.0.1", "--port", &port]).stdout(Stdio::null()).status();
        asked
            .map(|status| status.success())
            .map_err(|error| FaultError::system("pg_isready cannot be run", error))
    }

    pub(super) fn act(&mut self, act: ProcessAct) -> Result<(), FaultError> {
        match act {
            ProcessAct::Kill => {
                self.end();
                Ok(())
            }
            ProcessAct::Start => self.spawn(),
            ProcessAct::Stop => self.signal(Signal::STOP),
            ProcessAct::Continue => self.signal(Signal::CONT),
        }
    }

    fn signal(&self, signal: Signal) -> Result<(), FaultError> {
        let pid = self.child.as_ref().and_then(|child| Pid::from_raw(i32::try_from(child.id()).ok()?));
        let pid = pid.ok_or_else(|| FaultError::lost("the store"))?;
        kill_process_group(pid, signal)
            .map_err(|error| FaultError::system("a signal cannot be sent", error.into()))
    }

    fn end(&mut self) {
        // It may have ended by itself, which is no different.
        let _ = self.signal(Signal::KILL);
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
        // A new PostgreSQL waits until the processes of the old one are gone, and takes a file of its own for the old one's.
        let _ = fs::remove_file(self.data().join("postmaster.pid"));
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.end();
    }
}

/// A program of PostgreSQL, which Debian keeps off the PATH.
fn postgres(name: &str) -> Result<PathBuf, FaultError> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|entry| entry.path().join("bin").join(name)).filter(|path| path.exists()).max();
    found.or_else(|| crate::target::locate(Path::new("/"), name)).ok_or_else(|| {
        FaultError::Unable("PostgreSQL is not on this machine: apt-get install postgresql".to_owned())
    })
}

/// Runs a command to its end.
pub(super) fn run(command: &mut Command) -> Result<(), FaultError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| FaultError::System(format!("{name} cannot be run"), error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(FaultError::Unable(format!("{name} failed ({}): {}", output.status, said.trim())))
}
