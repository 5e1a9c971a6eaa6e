//! A small disk of a process's own, to be full for a while.
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file system in memory that one process alone has mounted. It is gone when that ends.
pub struct Disk {
    folder: PathBuf,
    /// Where it is mounted, as the process sees it.
    mounted_at: PathBuf,
    process: u32,
}

impl Disk {
    /// The command, with such a file system at a folder. This takes root, or the right to make user namespaces.
    pub(super) fn command(command: &Command, size: &str, folder: &Path) -> Command {
        fs::create_dir(folder).unwrap();
        let mut mounted = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            mounted.arg("--map-root-user");
        }
        mounted.args(["--mount", "sh", "-c"]);
        mounted.arg("mount -t tmpfs -o size=$0,mode=700 weir \"$1\" && shift && exec \"$@\"");
        mounted.arg(size).arg(folder).arg(command.get_program());
        mounted.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        mounted.stdin(Stdio::null());
        mounted
    }

    /// The disk that a running process has at a folder.
    pub(super) fn of(process: u32, folder: &Path) -> Disk {
        let root = PathBuf::from(format!("/proc/{process}/root"));
        let seen = root.join(folder.strip_prefix("/").expect("the folder is absolute"));
        Disk { folder: seen, mounted_at: folder.to_owned(), process }
    }

    /// A program that has it mounted too, to be given a file there.
    pub fn program(&self, program: &str, file: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.process.to_string(), "--mount"]);
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.arg(program).arg(self.mounted_at.join(file));
        command
    }

    /// A file there, for this process to read.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Takes all bytes but so many.
    pub fn fill_up_to(&self, room: u64) {
        self.fill(None);
        let filler = File::options().write(true).open(self.path("filler")).unwrap();
        filler.set_len(filler.metadata().unwrap().len() - room).unwrap();
    }

    /// Takes so many bytes; without a number, all that there are.
    pub fn fill(&self, bytes: Option<usize>) {
        let mut filler = File::options().append(true).create(true).open(self.path("filler")).unwrap();
        let page = [0; 4096];
        for _ in 0..bytes.map_or(usize::MAX, |bytes| bytes / page.len()) {
            match filler.write_all(&page) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull && bytes.is_none() => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Gives back what was taken.
    pub fn free(&self) {
        fs::remove_file(self.path("filler")).unwrap();
    }
}
