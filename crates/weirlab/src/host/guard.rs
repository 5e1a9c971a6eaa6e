//! The guard: a process of this very program that outlives the session if that is killed, and ends what it left running.
use super::working_folder;
use crate::driver::Driver;
use crate::driver::docker::Docker;
use crate::driver::process::Process;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

/// The command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The session's working folder
    folder: PathBuf,
    /// What starts its targets
    #[arg(long, default_value = "process", value_parser = ["process", "docker"])]
    driver: String,
}

/// Waits for the end of the standard input, a pipe from the session. Then ends what launches in the folder have left, puts
/// settings of the machine back, and removes the folder; where the session has done so itself, nothing is left to do.
///
/// # Errors
/// When the input cannot be read, or what is left cannot be ended.
pub fn run(args: Args) -> Result<ExitCode, String> {
    io::stdin().read_to_end(&mut Vec::new()).map_err(|error| format!("the session's pipe: {error}"))?;
    if args.folder.exists() {
        let driver: Box<dyn Driver> = match args.driver.as_str() {
            "docker" => Box::new(Docker::from_environment().map_err(|error| error.to_string())?),
            _ => Box::new(Process),
        };
        // Prometheus is a process of this machine whatever starts targets.
        Process.end_below(&args.folder).map_err(|error| error.to_string())?;
        working_folder::clear(&args.folder, &*driver).map_err(|error| error.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A guard that watches. To be dropped when the working folder is gone.
pub(crate) struct Guard {
    child: Child,
    lifeline: Option<ChildStdin>,
}

impl Guard {
    pub(crate) fn start(program: &Path, folder: &Path, driver: &str) -> io::Result<Guard> {
        let mut command = Command::new(program);
        command.arg("guard").arg(folder).args(["--driver", driver]);
        // A terminal's Ctrl-C is not for the guard, which has to outlive the session.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        let mut child = command.spawn()?;
        let lifeline = child.stdin.take();
        Ok(Guard { child, lifeline })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        // It has printed its error.
        let _ = self.child.wait();
    }
}
