//! Calls of git.
use super::{VersionError, failed, system};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The root of the work tree that a folder is in.
pub(super) fn top(folder: &Path) -> Result<PathBuf, VersionError> {
    let output = run(folder, &["rev-parse", "--show-toplevel"])?;
    if output.status.success() {
        return Ok(PathBuf::from(said(&output)));
    }
    let (folder, why) = (folder.display(), String::from_utf8_lossy(&output.stderr).trim().to_owned());
    Err(VersionError::Unknown(format!(
        "{folder} is not in a git repository, which versions are built from ({why}): run this in a clone of Weir, or \
         name the path of a binary"
    )))
}

/// The full name of a commit.
pub(super) fn commit(top: &Path, reference: &str) -> Result<String, VersionError> {
    let named = format!("{reference}^{{commit}}");
    let output = run(top, &["rev-parse", "--verify", "--quiet", "--end-of-options", &named])?;
    if output.status.success() {
        return Ok(said(&output));
    }
    let (known, list) = match reference.strip_prefix("refs/tags/") {
        Some(tag) => (format!("tag {tag:?}"), "`git tag` lists them, and git:REF names other commits"),
        None => (format!("commit {reference:?}"), "`git branch --all` and `git log` show what there is"),
    };
    Err(VersionError::Unknown(format!(
        "{} knows no {known}: {list}; `git fetch --tags` brings new ones",
        top.display()
    )))
}

/// Whether anything differs from the commit that is checked out, new files included.
pub(super) fn dirty(top: &Path) -> Result<bool, VersionError> {
    Ok(!checked(top, &["status", "--porcelain"])?.is_empty())
}

/// Has the folder be a work tree of the repository with this commit checked out; whether its files have changed.
pub(super) fn check_out(top: &Path, tree: &Path, commit: &str) -> Result<bool, VersionError> {
    if is_work_tree(top, tree) {
        let before = checked(tree, &["rev-parse", "HEAD"])?;
        checked(tree, &["checkout", "--quiet", "--force", "--detach", commit])?;
        checked(tree, &["clean", "-ffdxq"])?;
        return Ok(before != commit);
    }
    match std::fs::remove_dir_all(tree) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(VersionError::System(format!("cannot clear {}", tree.display()), error));
        }
        _ => {}
    }
    // Forgets work trees whose folders are gone, such as that of a cache that was removed.
    checked(top, &["worktree", "prune"])?;
    let shown = tree.to_string_lossy();
    checked(top, &["worktree", "add", "--quiet", "--force", "--detach", &shown, commit])?;
    Ok(true)
}

/// The files that are under version control.
pub(super) fn files(tree: &Path) -> Result<Vec<PathBuf>, VersionError> {
    let listed = checked(tree, &["ls-files", "-z"])?;
    Ok(listed.split('\0').filter(|name| !name.is_empty()).map(|name| tree.join(name)).collect())
}

fn is_work_tree(top: &Path, tree: &Path) -> bool {
    // An empty folder within the user's checkout would answer for that.
    if !tree.join(".git").is_file() {
        return false;
    }
    let common = |folder: &Path| {
        let output = run(folder, &["rev-parse", "--path-format=absolute", "--git-common-dir"]).ok()?;
        output.status.success().then(|| said(&output))
    };
    common(tree).is_some_and(|found| common(top) == Some(found))
}

fn checked(folder: &Path, arguments: &[&str]) -> Result<String, VersionError> {
    let output = run(folder, arguments)?;
    if output.status.success() {
        return Ok(said(&output));
    }
    let command = format!("`git {}` failed in {}", arguments.join(" "), folder.display());
    Err(failed(&command, &String::from_utf8_lossy(&output.stderr)))
}

fn run(folder: &Path, arguments: &[&str]) -> Result<Output, VersionError> {
    let mut command = Command::new("git");
    // The user's hooks are for the user's checkouts.
    command.arg("-C").arg(folder).args(["-c", "core.hooksPath=/dev/null"]).args(arguments);
    // Within a hook these would lead every command to the user's checkout.
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR"] {
        command.env_remove(variable);
    }
    command.output().map_err(system("cannot run git; install it (Debian: apt-get install git)".to_owned()))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
