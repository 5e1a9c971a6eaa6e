//! Targets: folders with a `target.toml` and templates. A target says how it is found, configured, started, asked to
//! reload, and what it can do; nothing of any rival is in code.
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

mod file;
mod folder;
mod prepare;

pub use crate::catalogue::CatalogueError as TargetError;
pub(crate) use folder::locate;
pub use folder::{Target, find};
use prepare::KEY;
pub(crate) use prepare::KONG_YML;
pub use prepare::{Certificate, Preparation};

/// Everything a driver needs to start one gateway.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Launch {
    /// The target's label.
    pub label: String,
    /// Program and arguments; empty for a target without a process of its own, whose listeners are the upstream's.
    pub command: Vec<String>,
    /// Environment variables beside the inherited ones.
    pub environment: BTreeMap<String, String>,
    /// The folder it runs in, with its rendered configuration.
    pub folder: PathBuf,
    /// Where it will listen.
    pub listeners: Listeners,
    /// The sign that it is ready.
    pub ready: Ready,
    /// How it reloads its configuration.
    pub reload: Option<Reload>,
    /// How a new process of its program takes over, in the same ways.
    #[serde(default)]
    pub upgrade: Option<Reload>,
    /// The signal that ends it in good order.
    pub stop_signal: String,
    /// The command that ends it in good order, which comes before the signal; empty for none.
    pub stop_command: Vec<String>,
    /// The file, in its folder, that names its main process where that is not the command itself.
    pub pid_file: Option<PathBuf>,
    /// Files, beside its output, that hold its errors.
    pub error_logs: Vec<PathBuf>,
    /// Hosts a container image needs: the image's name, for the docker driver.
    pub image: Option<String>,
    /// What is in its folder, and nothing else, when it starts: paths within it and texts. Without any, the folder is
    /// taken as it is.
    pub files: Vec<(PathBuf, String)>,
}

impl Launch {
    /// The files of its configuration, without keys and certificates, and without files that hold its key inline.
    pub fn configuration(&self) -> impl Iterator<Item = &(PathBuf, String)> {
        let key = self.files.iter().find(|(path, _)| path.as_os_str() == KEY).map_or("", |(_, key)| key);
        // Inline it may be indented, or lack the lines around it.
        let lines: Vec<&str> =
            key.lines().filter(|line| !line.is_empty() && !line.contains("-----")).collect();
        self.files.iter().filter(move |(path, text)| {
            path.extension().is_none_or(|extension| extension != "pem")
                && !lines.iter().any(|line| text.contains(line))
        })
    }

    /// Empties the folder and writes the files into it.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write_files(&self) -> io::Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir_all(&self.folder)?,
        }
        for (path, text) in &self.files {
            let path = self.folder.join(path);
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(path, text)?;
        }
        Ok(())
    }
}

/// Addresses that were free a moment ago. All are held until the last is chosen, so that they differ.
///
/// # Errors
/// When there is no free port, or the address is not of this machine.
pub fn free_addresses(ip: IpAddr, count: usize) -> io::Result<Vec<SocketAddr>> {
    let held = (0..count).map(|_| TcpListener::bind((ip, 0))).collect::<io::Result<Vec<_>>>()?;
    held.iter().map(TcpListener::local_addr).collect()
}

/// Addresses of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Listeners {
    /// Plain HTTP traffic.
    pub http: Option<SocketAddr>,
    /// Traffic over TLS.
    pub https: Option<SocketAddr>,
    /// The Admin API.
    pub admin: Option<SocketAddr>,
    /// Status and metrics.
    pub status: Option<SocketAddr>,
    /// Data planes, on a control plane.
    pub cluster: Option<SocketAddr>,
}

/// The sign that a gateway is ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// A path that must answer on the traffic listener; none to only connect.
    pub path: Option<String>,
    /// The status of that answer; none for any below 500.
    pub status: Option<u16>,
    /// A path that must answer with 200 on the status listener, if one is named.
    pub status_path: Option<String>,
    /// How long that may take.
    pub within: Duration,
}

impl Default for Ready {
    fn default() -> Self {
        Ready { path: None, status: None, status_path: None, within: Duration::from_secs(10) }
    }
}

/// How a gateway reloads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reload {
    /// A signal to its main process.
    Signal(String),
    /// A command.
    Command(Vec<String>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_leaves_out_files_that_hold_the_key() {
        let key = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49\n-----END PRIVATE KEY-----\n";
        let inline = key.replace('\n', "\n    ");
        let texts =
            [("key.pem", key), ("both.pem", key), ("own.yaml", &inline), ("kong.yml", "services: []")];
        let files = texts.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
        let launch = Launch { files: files.into(), ..Launch::default() };
        let kept: Vec<&PathBuf> = launch.configuration().map(|(path, _)| path).collect();
        assert_eq!(kept, [&PathBuf::from("kong.yml")]);
    }
}
