//! The one connection to a host, which all channels share, and the program that is copied over it.
use super::diagnosis::{not_done, unreachable};
use super::file::HostEntry;
use crate::host::HostError;
use crate::manifest;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What is sent and comes back once the connection is there.
const SIGN: &str = "weirlab-is-connected";
/// How long a connection may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// A host that has vanished is given up after three times five seconds.
const OPTIONS: [&str; 6] = [
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ControlPersist=no",
    "Compression=no",
];

/// Puts a program in place: `$1` is its hash, `$2` its name. Copies only what is not there yet, whole or not at all.
const UPLOAD: &str = r#"set -e
folder="${XDG_CACHE_HOME:-$HOME/.cache}/weirlab/$1"; file="$folder/$2"
sum() { sha256sum < "$1" | cut -d ' ' -f 1; }
if [ -x "$file" ] && [ "$(sum "$file")" = "$1" ]; then echo "$file"; exit; fi
if [ -z "$3" ]; then exit; fi
mkdir -p "$folder"; part="$file.part.$$"; trap 'rm -f "$part"' EXIT
cat > "$part"; got="$(sum "$part")"
if [ "$got" != "$1" ]; then echo "the copy has the SHA-256 $got instead of $1" >&2; exit 1; fi
chmod 755 "$part"; mv "$part" "$file"; echo "$file""#;

/// A connection. Dropping it ends it and every channel.
pub(super) struct Master {
    host: HostEntry,
    socket: PathBuf,
    child: Child,
    /// The command at its other end waits for the end of this, also when this process is killed.
    lifeline: Option<ChildStdin>,
}

impl Master {
    /// Connects, and returns when the host has accepted the key.
    pub(super) fn open(host: &HostEntry, socket: PathBuf) -> Result<Master, HostError> {
        let mut command = ssh(host, &socket);
        command.args(["-o", "ControlMaster=yes"]).arg("--").arg(&host.address).arg("exec cat");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            HostError::Unusable(format!("ssh cannot be called ({error}): install openssh-client"))
        })?;
        let said = child.stderr.take().map(collect);
        let mut lifeline = child.stdin.take();
        if let Some(pipe) = &mut lifeline {
            // Where it cannot be written, ssh has ended and says why.
            let _ = writeln!(pipe, "{SIGN}");
        }
        let output = child.stdout.take().map(BufReader::new);
        let connected =
            output.is_some_and(|lines| lines.lines().map_while(Result::ok).any(|line| line == SIGN));
        let mut master = Master { host: host.clone(), socket, child, lifeline };
        if connected {
            return Ok(master);
        }
        // It has ended: its output has.
        let _ = master.child.wait();
        let said = said.and_then(|said| said.join().ok()).unwrap_or_default();
        Err(unreachable(host, &said))
    }

    /// A command of the host's shell, over the connection.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        let mut command = ssh(&self.host, &self.socket);
        // Once the connection is gone, ssh would make another that nothing ends.
        command
            .args(["-o", "ControlMaster=no", "-o", "ProxyCommand=false"])
            .arg("--")
            .arg(&self.host.address);
        command.arg(words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "));
        command
    }

    /// What a command says; an error if it fails.
    pub(super) fn output(&self, doing: &str, words: &[&str]) -> Result<String, HostError> {
        let output = self.command(words).stdin(Stdio::null()).output();
        self.checked(doing, output)
    }

    /// Makes sure that a program is on the host; returns its path there.
    pub(super) fn upload(&self, program: &Path) -> Result<String, HostError> {
        let failed = |error: std::io::Error| {
            HostError::Unusable(format!("{} cannot be read: {error}", program.display()))
        };
        let hash = manifest::sha256_of(program).map_err(failed)?;
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let doing = format!("copying {} to it", program.display());
        let script = |copy: &'static str| ["sh", "-c", UPLOAD, "sh", &hash, &name, copy].map(str::to_owned);
        let words = script("");
        let found = self.output(&doing, &words.each_ref().map(String::as_str))?;
        if !found.trim().is_empty() {
            return Ok(found.trim().to_owned());
        }
        let words = script("copy");
        let mut command = self.command(&words.each_ref().map(String::as_str));
        let output = command.stdin(File::open(program).map_err(failed)?).output();
        Ok(self.checked(&doing, output)?.trim().to_owned())
    }

    fn checked(&self, doing: &str, output: std::io::Result<Output>) -> Result<String, HostError> {
        let output = output.map_err(|error| HostError::Unusable(format!("ssh cannot be called: {error}")))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(not_done(&self.host, doing, &String::from_utf8_lossy(&output.stderr)))
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        let deadline = Instant::now() + END_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ssh(host: &HostEntry, socket: &Path) -> Command {
    let mut command = Command::new("ssh");
    command.arg("-T");
    for option in OPTIONS {
        command.args(["-o", option]);
    }
    command.arg("-o").arg(format!("ControlPath={}", socket.display()));
    if let Some(file) = &host.known_hosts {
        command.arg("-o").arg(format!("UserKnownHostsFile={}", file.display()));
    }
    if let Some(file) = &host.identity_file {
        command.args(["-o", "IdentitiesOnly=yes", "-i"]).arg(file);
    }
    if let Some(user) = &host.user {
        command.args(["-l", user]);
    }
    if let Some(port) = host.port {
        command.args(["-p", &port.to_string()]);
    }
    // A terminal's Ctrl-C is for the session, which ends what it started over there first.
    command.process_group(0);
    command
}

/// A word for the shell of the host.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// What comes from a pipe until it ends.
pub(super) fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is still worth showing.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
