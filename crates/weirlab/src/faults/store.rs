//! A server that a gateway keeps counters or its configuration in, Redis or PostgreSQL, as a process of the run; or one that
//! belongs to it: a standby, or a sentinel.
use super::FaultError;
use super::act::ProcessAct;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(10);
const START_TIMEOUT: Duration = Duration::from_secs(60);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Who runs PostgreSQL, which refuses to run as root.
const POSTGRES_USER: &str = "postgres";
/// What sentinels call the servers that they watch.
pub(super) const MASTER: &str = "counts";

const SENTINEL_FILE: &str = "sentinel.conf";

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Redis,
    /// What finds another master of Redis when the one that it follows fails.
    Sentinel,
    Postgres,
}

/// What a server is to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Alone,
    /// Each commit to PostgreSQL waits until a standby has it.
    Primary,
    /// It follows the server at this address.
    Follower(SocketAddr),
}

/// A server, whether or not it runs at the moment. Dropping it ends it.
pub(super) struct Store {
    kind: Kind,
    role: Role,
    folder: PathBuf,
    pub(super) address: SocketAddr,
    child: Option<Child>,
}

impl Store {
    /// Starts it in a folder of its own.
    pub(super) fn start(kind: Kind, role: Role, folder: &Path, port: u16) -> Result<Self, FaultError> {
        fs::create_dir_all(folder).map_err(|error| FaultError::system("a folder cannot be made", error))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut store = Self { kind, role, folder: folder.to_owned(), address, child: None };
        match (kind, role) {
            (Kind::Postgres, Role::Follower(primary)) => store.copy(primary)?,
            (Kind::Postgres, _) => store.initialise()?,
            (Kind::Sentinel, Role::Follower(master)) => store.configure_sentinel(master)?,
            _ => {}
        }
        store.spawn()?;
        Ok(store)
    }

    /// Makes a cluster of databases, of a user who may do everything without a password.
    fn initialise(&self) -> Result<(), FaultError> {
        self.give_away()?;
        let mut initdb = self.as_user(&postgres("initdb")?);
        run(initdb.args(["--auth", "trust", "--username", "weir", "--no-sync", "--pgdata"]).arg(self.data()))
    }

    /// Makes a copy of a server's databases, which then follows it.
    fn copy(&self, primary: SocketAddr) -> Result<(), FaultError> {
        self.give_away()?;
        let port = primary.port().to_string();
        let mut copy = self.as_user(&postgres("pg_basebackup")?);
        copy.args(["--host", "127.0.0.1", "--port", &port, "--username", "weir", "--write-recovery-conf"]);
        run(copy.args(["--checkpoint", "fast", "--no-sync", "--pgdata"]).arg(self.data()))
    }

    /// PostgreSQL's own user may use the folder.
    fn give_away(&self) -> Result<(), FaultError> {
        if rustix::process::geteuid().is_root() {
            let parents = self.folder.ancestors().take_while(|at| at.starts_with(std::env::temp_dir()));
            for parent in parents.filter(|at| *at != std::env::temp_dir()) {
                run(Command::new("chmod").arg("o+x").arg(parent))?;
            }
            run(Command::new("chown").arg(POSTGRES_USER).arg(&self.folder))?;
        }
        Ok(())
    }

    /// A sentinel that replaces the master after half a second. It keeps what it learns in its file.
    fn configure_sentinel(&self, master: SocketAddr) -> Result<(), FaultError> {
        let (ip, port) = (master.ip(), master.port());
        let text = format!(
            "sentinel monitor {MASTER} {ip} {port} 1\nsentinel down-after-milliseconds {MASTER} 500\n\
             sentinel failover-timeout {MASTER} 3000\n"
        );
        fs::write(self.folder.join(SENTINEL_FILE), text)
            .map_err(|error| FaultError::system("the file of a sentinel cannot be written", error))
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
                command.args(["--repl-diskless-sync-delay", "0"]);
                if let Role::Follower(master) = self.role {
                    command.args(["--replicaof", "127.0.0.1", &master.port().to_string()]);
                }
                command
            }
            Kind::Sentinel => {
                let mut command = Command::new("redis-server");
                command.args([SENTINEL_FILE, "--sentinel", "--port", &port, "--bind", "127.0.0.1"]);
                command
            }
            Kind::Postgres => {
                let mut command = self.as_user(&postgres("postgres")?);
                command.args(["-p", &port, "-h", "127.0.0.1", "-c", "unix_socket_directories=", "-D"]);
                command.arg(self.data());
                if self.role == Role::Primary {
                    command.args(["-c", "synchronous_standby_names=*"]);
                }
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
        until("the store", || self.is_ready())
    }

    /// PostgreSQL accepts connections before it serves them.
    fn is_ready(&self) -> Result<bool, FaultError> {
        if self.kind != Kind::Postgres {
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

    /// Has PostgreSQL end to follow, and accept writes.
    pub(super) fn promote(&self) -> Result<(), FaultError> {
        let mut promote = self.as_user(&postgres("pg_ctl")?);
        run(promote.args(["promote", "--pgdata"]).arg(self.data()))
    }

    /// Whether a server or a sentinel of Redis answers with such a text.
    pub(super) fn says(&self, question: &str, expected: &str) -> bool {
        self.answer(question).is_some_and(|answer| answer.contains(expected))
    }

    /// Whether a server of Redis has keys.
    pub(super) fn has_keys(&self) -> bool {
        self.answer("DBSIZE").is_some_and(|answer| answer.starts_with(':') && answer.trim() != ":0")
    }

    /// What a server or a sentinel of Redis answers.
    fn answer(&self, question: &str) -> Option<String> {
        let ask = || -> io::Result<String> {
            let mut stream = TcpStream::connect(self.address)?;
            stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
            stream.write_all(format!("{question}\r\n").as_bytes())?;
            stream.shutdown(Shutdown::Write)?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        ask().ok()
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

/// Waits until something holds; what does not answer is named.
pub(super) fn until(
    what: &str,
    mut holds: impl FnMut() -> Result<bool, FaultError>,
) -> Result<(), FaultError> {
    let deadline = Instant::now() + START_TIMEOUT;
    while !holds()? {
        if Instant::now() > deadline {
            return Err(FaultError::lost(what));
        }
        thread::sleep(LOOK);
    }
    Ok(())
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
