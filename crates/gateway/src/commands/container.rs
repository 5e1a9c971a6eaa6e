//! What Kong's image has a script for: `weir docker-start`, and `docker-entrypoint.sh` as a name of the program.
use super::Context;
use super::start::{make_ready, serve, start_of};
use crate::cli::PrepareArgs;
use crate::program;
use rustix::fs::{AtFlags, Dir, Gid, Mode, OFlags, Uid, chownat, openat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{fchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The logs of Kong's folder, and where they go in a container.
const LOGS: [(&str, &str); 3] =
    [("access.log", "/dev/stdout"), ("admin_access.log", "/dev/stdout"), ("error.log", "/dev/stderr")];

/// Makes the folder ready and serves in the foreground, as the user that the settings name.
pub(super) fn docker_start(args: PrepareArgs, context: &Context) -> Result<ExitCode, String> {
    args.nginx.refuse()?;
    let loaded = context.load(args.settings.clone())?;
    let folder = make_ready(&loaded.settings, context)?;
    link_logs(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    // The root of the file system is not a node's own folder.
    let is_given = loaded.given.contains(&"nginx_user");
    let user = User::to_become(&loaded.settings.nginx_user, is_given)?.filter(|_| folder.parent().is_some());
    let Some(user) = user else {
        return serve(loaded, start_of(&args.settings, None, context)?, context, |_| Ok(()));
    };
    context.say(1, &format!("continuing as {}", user.name));
    user.own(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let program = program::own().map_err(|error| error.to_string())?;
    let error = Command::new(&program)
        .arg0(program::argument(&program, context.program.command()))
        .arg("docker-start")
        .args(args.settings.in_prefix(&folder).options())
        .env("HOME", &user.home)
        .uid(user.uid)
        .gid(user.gid)
        .exec();
    Err(format!(
        "cannot continue as {}: {error}: set nginx_user, or run the container as that user",
        user.name
    ))
}

/// Runs a command as Kong's image does: in the foreground, if it starts a node.
pub(crate) fn entrypoint(command_line: Vec<OsString>) -> Result<ExitCode, String> {
    let mut words = command_line.into_iter().skip(1);
    let name = words.next().ok_or("name a command, as in `docker-entrypoint.sh kong docker-start`")?;
    let is_own = Path::new(&name).file_name().is_some_and(|name| name == "kong" || name == "weir");
    let program = match is_own {
        true => std::env::current_exe().map_err(|error| error.to_string())?.into_os_string(),
        false => name.clone(),
    };
    let mut command = Command::new(program);
    command.arg0(&name).args(words);
    if std::env::var_os("KONG_NGINX_DAEMON").is_none_or(|value| value.is_empty()) {
        command.env("KONG_NGINX_DAEMON", "off");
    }
    Err(format!("{}: {}", name.display(), command.exec()))
}

/// Has logs in the folder go to the container's.
fn link_logs(folder: &Path) -> io::Result<()> {
    for (name, target) in LOGS {
        let link = folder.join("logs").join(name);
        match fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => symlink(target, &link)?,
        }
    }
    Ok(())
}

/// A user of the system.
#[derive(Debug, PartialEq, Eq)]
struct User {
    name: String,
    uid: u32,
    gid: u32,
    home: String,
}

impl User {
    /// The user that root is to continue as; none for others. One that is asked for must exist, because the node would
    /// stay root without it, unless it is the name that stands for none in Kong.
    fn to_become(setting: &str, is_given: bool) -> Result<Option<User>, String> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let file = |path| fs::read_to_string(path).unwrap_or_default();
        match User::named(setting, &file("/etc/passwd"), &file("/etc/group")) {
            None if is_given && !matches!(setting.trim(), "" | "nobody" | "nobody nobody") => Err(format!(
                "nginx_user: the system has no user or no group of `{setting}`: name one that it has, or leave it out"
            )),
            user => Ok(user.filter(|user| user.uid != 0)),
        }
    }

    /// Finds `USER` or `USER GROUP` in the system's files.
    fn named(setting: &str, passwd: &str, group: &str) -> Option<User> {
        let mut words = setting.split_whitespace();
        let (name, group_name) = (words.next()?, words.next());
        let fields = fields_of(passwd, name)?;
        let [_, _, uid, gid, _, home, ..] = fields.as_slice() else { return None };
        let gid = match group_name {
            Some(name) => (*fields_of(group, name)?.get(2)?).to_owned(),
            None => (*gid).to_owned(),
        };
        let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
        Some(User { name: name.to_owned(), uid, gid, home: (*home).to_owned() })
    }

    /// Makes a folder and all in it the user's. No link in it is followed, whatever changes there meanwhile.
    fn own(&self, folder: &Path) -> io::Result<()> {
        self.own_open(fs::File::open(folder)?.as_fd())
    }

    fn own_open(&self, folder: BorrowedFd<'_>) -> io::Result<()> {
        fchown(folder, Some(self.uid), Some(self.gid))?;
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match openat(folder, name, flags, Mode::empty()) {
                Ok(inner) => self.own_open(inner.as_fd())?,
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
                    chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// The fields of the line that begins with a name.
fn fields_of<'f>(file: &'f str, name: &str) -> Option<Vec<&'f str>> {
    file.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields.first() == Some(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_with_their_group() {
        let passwd = "root:x:0:0:root:/r:/bin/sh\nkong:x:1000:1001::/k:/bin/sh\n";
        let group = "root:x:0:\nkong:x:1002:\n";
        let kong = |gid| Some(User { name: "kong".to_owned(), uid: 1000, gid, home: "/k".to_owned() });
        assert_eq!(User::named("kong kong", passwd, group), kong(1002));
        assert_eq!(User::named("kong", passwd, group), kong(1001));
        for absent in ["daemon", "kong nogroup", "", "kon"] {
            assert_eq!(User::named(absent, passwd, group), None, "{absent}");
        }
    }
}
