//! Versions of Weir: a commit, a released tag, the work tree, or a binary, made into a binary to run.
//!
//! Commits are built in one work tree of their own below the cache, with one folder for what is compiled, so that
//! dependencies are built once; the user's checkout is not touched. A binary that was built once is kept by its commit.
mod build;
mod git;

use crate::driver::last_lines;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What a user writes to name a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionSpec {
    /// `git:main`: whatever git knows as a commit.
    Commit(String),
    /// `v0.1.0`: a tag.
    Tag(String),
    /// `/path/to/weir`: built already.
    Binary(PathBuf),
    /// `worktree`: the checkout as it is, with its changes.
    WorkTree,
}

/// How to compile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// As releases are built.
    #[default]
    Release,
    /// As fast to run to within some percent, and sooner built.
    Quick,
}

/// A version that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The version as it was written.
    pub label: String,
    /// Its binary; no later build overwrites it, unless the user gave its path.
    pub binary: PathBuf,
    /// Its commit, where that is known.
    pub commit: Option<String>,
    /// Whether it holds changes that are not committed.
    pub dirty: bool,
}

/// Why there is no such version.
#[derive(Debug)]
pub enum VersionError {
    /// It is not written as a version is.
    Spec(String),
    /// There is no such commit, tag, binary or repository.
    Unknown(String),
    /// It does not compile; the last lines say why.
    Build(String),
    /// A system call failed.
    System(String, io::Error),
}

impl VersionSpec {
    /// Reads `git:REF`, a tag, a path (with a `/` in it) or `worktree`.
    ///
    /// # Errors
    /// When it is none of them.
    pub fn parse(text: &str) -> Result<VersionSpec, VersionError> {
        let forms =
            "write git:REF (such as git:main or git:HEAD~10), a tag, worktree, or the path of a binary";
        match (text, text.strip_prefix("git:")) {
            ("worktree", _) => Ok(VersionSpec::WorkTree),
            ("" | "git:", _) => Err(VersionError::Spec(format!("{text:?} names no version: {forms}"))),
            (_, Some(reference)) => Ok(VersionSpec::Commit(reference.to_owned())),
            _ if text.contains('/') => Ok(VersionSpec::Binary(PathBuf::from(text))),
            _ if text.contains([':', ' ']) => {
                Err(VersionError::Spec(format!("{text:?} is no version: {forms}")))
            }
            _ => Ok(VersionSpec::Tag(text.to_owned())),
        }
    }
}

impl std::fmt::Display for VersionSpec {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            VersionSpec::Commit(reference) => write!(formatter, "git:{reference}"),
            VersionSpec::Tag(tag) => formatter.write_str(tag),
            VersionSpec::Binary(path) => write!(formatter, "{}", path.display()),
            VersionSpec::WorkTree => formatter.write_str("worktree"),
        }
    }
}

impl Profile {
    /// As cargo calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Profile::Release => "release",
            Profile::Quick => "quick",
        }
    }
}

/// Where built versions are kept, unless the user names another place.
///
/// # Errors
/// When `repo` is not within a git repository.
pub fn default_cache(repo: &Path) -> Result<PathBuf, VersionError> {
    Ok(git::top(repo)?.join("target/weirlab"))
}

/// Makes a version of the repository at `repo` into a binary, in the release profile; says meanwhile what it does.
///
/// # Errors
/// When there is no such version, or it does not compile.
pub fn resolve(
    spec: &VersionSpec,
    repo: &Path,
    cache: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<Built, VersionError> {
    resolve_as(Profile::Release, spec, repo, cache, progress)
}

/// As [`resolve`], in a profile of choice.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_as(
    profile: Profile,
    spec: &VersionSpec,
    repo: &Path,
    cache: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<Built, VersionError> {
    let label = spec.to_string();
    let reference = match spec {
        VersionSpec::Binary(path) => {
            return Ok(Built { binary: executable(path)?, label, commit: None, dirty: false });
        }
        VersionSpec::WorkTree => {
            let top = git::top(repo)?;
            let (commit, dirty) = (Some(git::commit(&top, "HEAD")?), git::dirty(&top)?);
            let binary =
                build::Workshop::open(cache, profile, &label, progress)?.work_tree(&top, progress)?;
            return Ok(Built { label, binary, commit, dirty });
        }
        VersionSpec::Commit(reference) => reference.clone(),
        VersionSpec::Tag(tag) => format!("refs/tags/{tag}"),
    };
    let top = git::top(repo)?;
    let commit = git::commit(&top, &reference)?;
    let binary = build::Workshop::open(cache, profile, &label, progress)?.commit(&top, &commit, progress)?;
    Ok(Built { label, binary, commit: Some(commit), dirty: false })
}

fn executable(path: &Path) -> Result<PathBuf, VersionError> {
    let shown = path.display();
    let absolute = std::fs::canonicalize(path)
        .map_err(|error| VersionError::Unknown(format!("the binary {shown} cannot be used: {error}")))?;
    let runs = absolute.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0);
    if runs {
        Ok(absolute)
    } else {
        Err(VersionError::Unknown(format!("{shown} is not a program that can be run")))
    }
}

fn system(what: String) -> impl FnOnce(io::Error) -> VersionError {
    move |error| VersionError::System(what, error)
}

impl std::fmt::Display for VersionError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            VersionError::Spec(text) | VersionError::Unknown(text) | VersionError::Build(text) => {
                formatter.write_str(text)
            }
            VersionError::System(text, error) => write!(formatter, "{text}: {error}"),
        }
    }
}

impl std::error::Error for VersionError {}

/// The error of a command that failed, ending with its output.
fn failed(what: &str, said: &str) -> VersionError {
    VersionError::Build(format!("{what}{}", last_lines(said)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_they_are_written() {
        let cases = [
            ("git:main", VersionSpec::Commit("main".to_owned())),
            ("git:HEAD~10", VersionSpec::Commit("HEAD~10".to_owned())),
            ("git:feature/x", VersionSpec::Commit("feature/x".to_owned())),
            ("v0.1.0", VersionSpec::Tag("v0.1.0".to_owned())),
            ("/usr/bin/weir", VersionSpec::Binary(PathBuf::from("/usr/bin/weir"))),
            ("./weir", VersionSpec::Binary(PathBuf::from("./weir"))),
            ("worktree", VersionSpec::WorkTree),
        ];
        for (text, spec) in cases {
            assert_eq!(VersionSpec::parse(text).unwrap(), spec);
            assert_eq!(spec.to_string(), text);
        }
        for text in ["", "git:", "svn:trunk", "two words"] {
            let error = VersionSpec::parse(text).unwrap_err().to_string();
            assert!(error.contains("write git:REF"), "{error}");
        }
    }
}
