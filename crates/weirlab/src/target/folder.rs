//! Where targets are found, what they can do, and where their programs are.
use super::TargetError;
use super::file::TargetFile;
use crate::catalogue::{Entry, Kind, read_toml, render, select};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const TARGETS: Kind = Kind { what: "target", below: "targets", marker: "target.toml" };

/// A folder with a `target.toml`, read.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its folder's name, such as `nginx`.
    pub name: String,
    /// What it calls itself.
    pub title: String,
    /// Where it is.
    pub folder: PathBuf,
    /// What it can do.
    pub features: BTreeSet<String>,
    pub(super) file: TargetFile,
}

/// The targets that the names stand for: folders, names below `targets/`, or `*` for any characters. No names stand for
/// all.
///
/// # Errors
/// When a name stands for nothing, or what it stands for cannot be read.
pub fn find(names: &[String], root: &Path) -> Result<Vec<Target>, TargetError> {
    select(&TARGETS, names, root)?.into_iter().map(Target::read).collect()
}

impl Target {
    fn read(entry: Entry) -> Result<Target, TargetError> {
        let file: TargetFile = read_toml(&entry.folder.join("target.toml"))?;
        let (title, mut features) = (file.title.clone(), file.features.clone());
        if !file.command.is_empty() {
            features.insert("process".to_owned());
        }
        Ok(Target { name: entry.name, title, folder: entry.folder, features, file })
    }

    /// Why it cannot stand the case, as a sentence; none if it can.
    #[must_use]
    pub fn lacks(&self, needs: &BTreeSet<String>) -> Option<String> {
        let missing: Vec<String> = needs
            .difference(&self.features)
            .map(|feature| {
                let said = self.file.lacks.get(feature).cloned();
                said.unwrap_or_else(|| format!("{} has no {feature}", self.title))
            })
            .collect();
        (!missing.is_empty()).then(|| format!("needs {}: {}", self.missing(needs), missing.join("; ")))
    }

    fn missing(&self, needs: &BTreeSet<String>) -> String {
        needs.difference(&self.features).cloned().collect::<Vec<_>>().join(", ")
    }

    /// The sentences of what it cannot do, by feature.
    #[must_use]
    pub fn lacking(&self) -> &BTreeMap<String, String> {
        &self.file.lacks
    }

    /// Whether a gateway runs at all: without one, its listeners are the upstream's.
    #[must_use]
    pub fn has_process(&self) -> bool {
        !self.file.command.is_empty()
    }

    /// Why its figures were not taken in development, if so.
    #[must_use]
    pub fn unmeasured(&self) -> Option<&str> {
        self.file.unmeasured.as_deref()
    }

    /// How its program is installed.
    #[must_use]
    pub fn install(&self) -> &str {
        &self.file.install
    }

    /// Where to read about it.
    #[must_use]
    pub fn homepage(&self) -> Option<&str> {
        self.file.homepage.as_deref()
    }

    /// The path where its Admin API reports what its plugins cost, if it has one.
    #[must_use]
    pub fn costs(&self) -> Option<&str> {
        self.file.costs.as_deref()
    }

    /// The path where its Admin API answers for each second, in the form of Weir's analytics, if it does.
    #[must_use]
    pub fn analytics(&self) -> Option<&str> {
        self.file.analytics.as_deref()
    }

    /// The path of metrics for Prometheus on its status listener, if it has them.
    #[must_use]
    pub fn metrics(&self) -> Option<&str> {
        self.file.metrics.as_deref()
    }

    /// Its container image, for the Docker driver, if it names one.
    #[must_use]
    pub fn image(&self) -> Option<&str> {
        self.file.docker.as_ref().map(|docker| docker.image.as_str())
    }

    /// Its program: the given one, the one that `WEIRLAB_NAME` in the environment names, or the first found of those
    /// in `target.toml`, on the PATH or, if they have a slash, where they say, seen from the target's folder.
    ///
    /// # Errors
    /// When there is none; the text says how to install it.
    pub fn binary(&self, given: Option<&Path>) -> Result<PathBuf, TargetError> {
        if self.file.built_in {
            return std::env::current_exe()
                .map_err(|error| TargetError::Unreadable(PathBuf::from("weirlab"), error));
        }
        if let Some(path) = given.map(Path::to_owned).or_else(|| self.named_program()) {
            let absolute = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
            return if is_program(&absolute) { Ok(absolute) } else { Err(self.no_program(&path)) };
        }
        self.file
            .find
            .iter()
            .find_map(|candidate| locate(&self.folder, candidate))
            .ok_or_else(|| self.not_installed())
    }

    /// The program that the environment names.
    #[must_use]
    pub fn named_program(&self) -> Option<PathBuf> {
        std::env::var_os(self.override_variable()).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// Whether this program is of this project, rather than installed: a host gets a copy of it.
    #[must_use]
    pub fn is_own(&self, binary: &Path) -> bool {
        let installed = self.candidates_elsewhere();
        installed.iter().all(|candidate| locate(&self.folder, candidate).as_deref() != Some(binary))
    }

    /// Whether its program is `weirlab` itself.
    #[must_use]
    pub fn is_built_in(&self) -> bool {
        self.file.built_in
    }

    /// Where its program may be on a machine that does not have this folder.
    #[must_use]
    pub fn candidates_elsewhere(&self) -> Vec<String> {
        let leads_anywhere = |candidate: &&String| !candidate.contains('/') || candidate.starts_with('/');
        self.file.find.iter().filter(leads_anywhere).cloned().collect()
    }

    /// The environment variable that names its program, such as `WEIRLAB_KONG`.
    #[must_use]
    pub fn override_variable(&self) -> String {
        let name = self.name.rsplit('/').next().unwrap_or(&self.name);
        format!("WEIRLAB_{}", name.to_uppercase().replace('-', "_"))
    }

    /// The command that makes it say its version; none if it has no process.
    ///
    /// # Errors
    /// When the command's template is wrong.
    pub fn version_command(&self, binary: &Path) -> Result<Vec<String>, TargetError> {
        let context = BTreeMap::from([("binary", binary.to_string_lossy())]);
        let manifest = self.folder.join("target.toml");
        self.file.version.iter().map(|word| render(&manifest, word, &context)).collect()
    }

    fn no_program(&self, path: &Path) -> TargetError {
        TargetError::Missing(format!(
            "{} is no program that can be run, given for {}",
            path.display(),
            self.name
        ))
    }

    fn not_installed(&self) -> TargetError {
        let variable = self.override_variable();
        TargetError::Missing(format!(
            "{} is not on this machine ({}). Install it: {}. Or name its program with {variable}=PATH",
            self.title,
            self.file.find.join(", "),
            self.file.install
        ))
    }
}

/// The program that a candidate of `find` leads to: one with a slash is seen from the folder.
pub(crate) fn locate(folder: &Path, candidate: &str) -> Option<PathBuf> {
    if candidate.contains('/') {
        let path = folder.join(candidate).canonicalize().ok()?;
        return is_program(&path).then_some(path);
    }
    let places = std::env::var_os("PATH")?;
    std::env::split_paths(&places).map(|folder| folder.join(candidate)).find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}
