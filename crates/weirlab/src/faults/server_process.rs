//! An upstream server as the run sees it: a process that is started, given a behaviour, killed and stopped.
use super::FaultError;
use super::act::ProcessAct;
use super::behaviour::Behaviour;
use super::journal::Journal;
use super::server::Plan;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a server may take to start, or to confirm its behaviour.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// A server, whether or not its process runs at the moment.
pub(super) struct ServerProcess {
    /// Its number, by which the journal knows it.
    number: usize,
    weirlab: PathBuf,
    /// The network namespace that it runs in, if not that of the run.
    namespace: Option<String>,
    plan: Plan,
    journal: Arc<Mutex<Journal>>,
    /// What it sends does not arrive.
    is_cut_off: Arc<AtomicBool>,
    process: Option<Process>,
}

struct Process {
    child: Child,
    replies: Receiver<()>,
    reader: JoinHandle<()>,
}

impl ServerProcess {
    pub(super) fn start(
        number: usize,
        weirlab: &Path,
        namespace: Option<String>,
        plan: Plan,
        journal: &Arc<Mutex<Journal>>,
    ) -> Result<Self, FaultError> {
        let (weirlab, journal) = (weirlab.to_owned(), Arc::clone(journal));
        let is_cut_off = Arc::default();
        let mut server = Self { number, weirlab, namespace, plan, journal, is_cut_off, process: None };
        server.spawn()?;
        Ok(server)
    }

    fn spawn(&mut self) -> Result<(), FaultError> {
        let mut child = self
            .command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| FaultError::system("an upstream server cannot be started", error))?;
        let output = child.stdout.take().ok_or_else(|| FaultError::lost("an upstream server"))?;
        let (sender, replies) = channel();
        let (number, journal) = (self.number, Arc::clone(&self.journal));
        let is_cut_off = Arc::clone(&self.is_cut_off);
        let note = move |line: &str| {
            if !(line.starts_with("done ") && is_cut_off.load(Ordering::Acquire)) {
                journal.lock().unwrap_or_else(PoisonError::into_inner).note(number, line);
            }
        };
        let reader = thread::spawn(move || read(BufReader::new(output), note, &sender));
        let process = Process { child, replies, reader };
        process.wait_for_reply()?;
        self.process = Some(process);
        Ok(())
    }

    fn command(&self) -> Command {
        let mut command = match &self.namespace {
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(&self.weirlab);
                command
            }
            None => Command::new(&self.weirlab),
        };
        command.arg("fault-server").arg("--body-bytes").arg(self.plan.body_bytes.to_string());
        for address in &self.plan.listen {
            command.arg("--listen").arg(address.to_string());
        }
        if let Some((certificate, key)) = &self.plan.tls {
            command.arg("--certificate").arg(certificate).arg("--key").arg(key);
        }
        command
    }

    pub(super) fn behave(&mut self, behaviour: Behaviour) -> Result<(), FaultError> {
        let process = self.process.as_mut().ok_or_else(|| FaultError::lost("an upstream server"))?;
        let input = process.child.stdin.as_mut().ok_or_else(|| FaultError::lost("an upstream server"))?;
        input
            .write_all(format!("{behaviour}\n").as_bytes())
            .map_err(|error| FaultError::system("an upstream server takes no orders", error))?;
        process.wait_for_reply()
    }

    /// What it sends arrives no longer, or again.
    pub(super) fn cut_off(&self, is_cut_off: bool) {
        self.is_cut_off.store(is_cut_off, Ordering::Release);
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
        let process = self.process.as_ref().ok_or_else(|| FaultError::lost("an upstream server"))?;
        send(process.child.id(), signal)
    }

    /// Kills it, and takes in all that it has reported before.
    pub(super) fn end(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        // It may have ended by itself, which is no different.
        let _ = process.child.kill();
        let _ = process.child.wait();
        let _ = process.reader.join();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.end();
    }
}

impl Process {
    fn wait_for_reply(&self) -> Result<(), FaultError> {
        self.replies.recv_timeout(REPLY_TIMEOUT).map_err(|_| FaultError::lost("an upstream server"))
    }
}

/// Sends a signal to one process.
pub(super) fn send(process: u32, signal: Signal) -> Result<(), FaultError> {
    let pid =
        i32::try_from(process).ok().and_then(Pid::from_raw).ok_or_else(|| FaultError::lost("a process"))?;
    kill_process(pid, signal).map_err(|error| FaultError::system("a signal cannot be sent", error.into()))
}

fn read(output: impl BufRead, note: impl Fn(&str), replies: &Sender<()>) {
    for line in output.lines().map_while(Result::ok) {
        if line == "ready" || line.starts_with("behaves ") {
            // The run may have given up.
            let _ = replies.send(());
        } else {
            note(&line);
        }
    }
}
