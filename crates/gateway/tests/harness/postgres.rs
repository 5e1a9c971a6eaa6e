//! A PostgreSQL server of the tests' own, from the system's package: in a folder of its own, on a free port.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::ports::unused_ports;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, Mutex};

/// Keeps a server: starts and stops it as it is told, and when nobody can tell it any more, for whatever reason, ends
/// it and removes the folder. Each line it is told is answered by a line.
const KEEPER: &str = r#"
set -u
folder=$(mktemp -d)
PATH="$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1):$PATH"
echo "$PASSWORD" > "$folder/password"
if [ -n "$PRIMARY" ]; then
  PGPASSWORD="$PASSWORD" pg_basebackup --host=127.0.0.1 --port="$PRIMARY" --username=kong --pgdata="$folder/data" \
    --write-recovery-conf --checkpoint=fast --no-sync
else
  initdb --pgdata="$folder/data" --username=kong --pwfile="$folder/password" --auth=scram-sha-256 \
    --encoding=UTF8 --no-locale --no-sync
fi > "$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
cd "$folder"
printf '[req]\ndistinguished_name=dn\n[dn]\n' > openssl.cnf
certify() { openssl req -config openssl.cnf -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 "$@" 2>> log; }
certify -subj /CN=authority -addext basicConstraints=critical,CA:TRUE -keyout ca.key -out ca.pem
certify -subj /CN=server -addext basicConstraints=critical,CA:FALSE -addext subjectAltName=IP:127.0.0.1 \
  -CA ca.pem -CAkey ca.key -keyout server.key -out server.pem
echo "$folder"
server=
while read -r task; do
  case $task in
    start)
      postgres -D "$folder/data" -p "$PORT" -h 127.0.0.1 -k "$folder" -c fsync=off \
        -c ssl=on -c ssl_cert_file="$folder/server.pem" -c ssl_key_file="$folder/server.key" >> "$folder/log" 2>&1 < /dev/null &
      server=$!
      until pg_isready -q -h 127.0.0.1 -p "$PORT"; do
        kill -0 "$server" 2>/dev/null || { cat "$folder/log" >&2; break; }
        sleep 0.05
      done
      kill -0 "$server" 2>/dev/null && echo started || echo failed ;;
    stop) kill -INT "$server"; wait "$server"; echo stopped ;;
    kill) kill -QUIT "$server"; wait "$server"; echo killed ;;
    crash) kill -KILL "$server"; wait "$server"; echo crashed ;;
    promote) pg_ctl -D "$folder/data" promote >> "$folder/log" 2>&1 && echo promoted || echo failed ;;
  esac
done
[ -n "$server" ] && kill -INT "$server" 2>/dev/null && wait "$server"
cd / && rm -rf "$folder"
"#;

const PASSWORD: &str = "do-not-tell";

/// A server; it ends with the process that started it, or when it is dropped.
pub struct PostgresServer {
    keeper: Child,
    tell: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
    folder: PathBuf,
    pub port: u16,
}

impl PostgresServer {
    /// The one that all tests of a binary share. Each takes a schema of its own.
    pub fn shared_port() -> u16 {
        static SHARED: LazyLock<Mutex<PostgresServer>> =
            LazyLock::new(|| Mutex::new(PostgresServer::start()));
        SHARED.lock().expect("it has started").port
    }

    /// Starts one.
    pub fn start() -> PostgresServer {
        PostgresServer::start_from(None)
    }

    /// Starts a standby, which follows this server.
    pub fn standby(&self) -> PostgresServer {
        PostgresServer::start_from(Some(self.port))
    }

    fn start_from(primary: Option<u16>) -> PostgresServer {
        for _ in 0..5 {
            let mut server = PostgresServer::on(unused_ports(1), primary);
            // Another process may have taken the port.
            if server.do_task("start") == "started" {
                return server;
            }
        }
        panic!("PostgreSQL does not start");
    }

    fn on(port: u16, primary: Option<u16>) -> PostgresServer {
        let mut command = unprivileged();
        command.args(["sh", "-c", KEEPER]).current_dir("/");
        command.env("PASSWORD", PASSWORD).env("PORT", port.to_string()).env("LC_ALL", "C");
        command.env("PRIMARY", primary.map(|port| port.to_string()).unwrap_or_default());
        let mut keeper =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("there is a shell");
        let mut answers = BufReader::new(keeper.stdout.take().unwrap()).lines();
        let folder = answers.next().expect("the package `postgresql` is installed").unwrap();
        PostgresServer { tell: keeper.stdin.take(), keeper, answers, folder: folder.into(), port }
    }

    /// The certificate of the authority that its own is from.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// Stops it as an operator would.
    pub fn stop(&mut self) {
        assert_eq!(self.do_task("stop"), "stopped");
    }

    /// Ends it in the middle of whatever it does.
    pub fn kill(&mut self) {
        assert_eq!(self.do_task("kill"), "killed");
    }

    /// Ends it by SIGKILL.
    pub fn crash(&mut self) {
        assert_eq!(self.do_task("crash"), "crashed");
    }

    /// Has a standby accept writes.
    pub fn promote(&mut self) {
        assert_eq!(self.do_task("promote"), "promoted");
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap()
    }

    /// Starts it again.
    pub fn restart(&mut self) {
        assert_eq!(self.do_task("start"), "started");
    }

    fn do_task(&mut self, task: &str) -> String {
        // A keeper that has ended has said why.
        let _ = writeln!(self.tell.as_mut().expect("not dropped"), "{task}");
        self.answers.next().and_then(Result::ok).unwrap_or_default()
    }

    /// Has a server run SQL; what it prints.
    pub fn execute(port: u16, sql: &str) -> String {
        PostgresServer::run("psql", port, &["-v", "ON_ERROR_STOP=1", "-c", sql, "postgres"])
    }

    /// What a server selects: a line for each row, with its fields between bars.
    pub fn select(port: u16, sql: &str) -> String {
        let lines =
            PostgresServer::run("psql", port, &["-v", "ON_ERROR_STOP=1", "-At", "-c", sql, "postgres"]);
        lines.trim_end().to_owned()
    }

    /// Runs a client program of PostgreSQL on a server; what it prints.
    pub fn run(program: &str, port: u16, arguments: &[&str]) -> String {
        let mut command = Command::new(program);
        command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "kong"]).args(arguments);
        let ran = command.env("PGPASSWORD", PASSWORD).output().expect("it is installed");
        assert!(ran.status.success(), "{program}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }

    /// A session of a server's own, for as long as it is kept: what it begins is undone when it is dropped.
    pub fn session(port: u16, begin: &str) -> PostgresSession {
        let port = port.to_string();
        let mut psql = Command::new("psql");
        psql.args(["-h", "127.0.0.1", "-p", &port, "-U", "kong", "-q", "-t", "-A", "postgres"]);
        let psql = psql.env("PGPASSWORD", PASSWORD).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut client = psql.spawn().expect("psql runs");
        writeln!(client.stdin.as_mut().unwrap(), "{begin}; SELECT 'done';").unwrap();
        let output = BufReader::new(client.stdout.as_mut().unwrap()).lines().next();
        assert_eq!(output.and_then(Result::ok).as_deref(), Some("done"));
        PostgresSession { client }
    }

    /// The settings that lead to a schema of it.
    pub fn settings(port: u16, schema: &str) -> Vec<(String, String)> {
        let port = port.to_string();
        let settings = [
            ("database", "postgres"),
            ("pg_port", &port),
            ("pg_password", PASSWORD),
            ("pg_database", "postgres"),
            ("pg_schema", schema),
        ];
        settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }
}

/// A session with a transaction that is not ended.
pub struct PostgresSession {
    client: Child,
}

impl Drop for PostgresSession {
    fn drop(&mut self) {
        drop(self.client.stdin.take());
        let _ = self.client.wait();
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.tell = None;
        let _ = self.keeper.wait();
    }
}

/// The server refuses to run as root, so root runs it as the user that came with the package.
fn unprivileged() -> Command {
    let is_root = std::fs::metadata("/proc/self")
        .is_ok_and(|process| std::os::unix::fs::MetadataExt::uid(&process) == 0);
    if !is_root {
        return Command::new("env");
    }
    assert!(Path::new("/usr/bin/setpriv").exists(), "setpriv is part of util-linux");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "env"]);
    command
}
