//! The contenders: the targets and versions that were named, and the control.
use super::target_runner::Contender;
use crate::generator::Generator;
use crate::manifest;
use crate::result::TargetManifest;
use crate::target::{self, Target};
use crate::version::{self, VersionSpec};
use std::path::{Path, PathBuf};

/// The user's choice.
pub struct Named<'a> {
    /// Targets, by name or as `name@version`.
    pub targets: &'a [String],
    /// Versions of Weir.
    pub versions: &'a [String],
    /// The binary of `weir`, if one was given.
    pub weir: Option<&'a Path>,
    /// Where scenarios and targets are.
    pub catalogue: &'a Path,
    /// Where versions are built.
    pub cache: Option<&'a Path>,
}

/// The contenders, in the order named; the first is the baseline.
///
/// # Errors
/// When a target or a version is unknown or cannot be built.
pub fn contenders(named: &Named<'_>, say: &mut dyn FnMut(&str)) -> Result<Vec<Contender>, String> {
    distinct(named.targets)?;
    let mut list = Vec::new();
    for version in named.versions {
        list.push(Contender { named: None, ..versioned(named, "weir", version, say)? });
    }
    for name in named.targets {
        list.push(match name.split_once('@') {
            Some((target, version)) => {
                Contender { named: Some(name.clone()), ..versioned(named, target, version, say)? }
            }
            None => installed(named, name)?,
        });
    }
    tell_apart(&mut list);
    Ok(list)
}

/// Refuses a target that is named twice.
///
/// # Errors
/// When there is one.
pub fn distinct(targets: &[String]) -> Result<(), String> {
    let twice = targets.iter().enumerate().find(|(at, name)| targets[..*at].contains(name));
    twice.map_or(Ok(()), |(_, name)| {
        Err(format!(
            "the target {name} is named twice: leave one out, because the A/A control measures the first a second time anyway"
        ))
    })
}

/// Adds the hash of its program to each label that several have: builds of one version.
fn tell_apart(list: &mut [Contender]) {
    let labels: Vec<String> = list.iter().map(|contender| contender.label.clone()).collect();
    let is_shared = |label: &String| labels.iter().filter(|other| *other == label).count() > 1;
    for contender in list.iter_mut().filter(|contender| is_shared(&contender.label)) {
        // A program that cannot be read fails when it is started.
        let hash = manifest::sha256_of(&contender.binary).unwrap_or_default();
        contender.label.extend(["+", hash.get(..8).unwrap_or_default()]);
    }
}

/// What a program says of its version, such as `0.1.0`: that says more than its path. The name of its file, where
/// it says nothing.
fn version_of(target: &Target, program: &Path) -> String {
    let command = target.version_command(program).unwrap_or_default();
    let said = manifest::target_version(&command).unwrap_or_default();
    let number = said.split_whitespace().find(|word| word.contains(|letter: char| letter.is_ascii_digit()));
    let number = number.map(|word| word.rsplit('/').next().unwrap_or(word).to_owned());
    let name = || program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    number.filter(|number| !number.is_empty()).unwrap_or_else(name)
}

/// The same program as the baseline once more, to show what difference no difference makes.
pub fn control(baseline: &Contender) -> Contender {
    Contender { label: format!("{} (again)", baseline.label), control: true, ..baseline.clone() }
}

/// Each contender under the load of each generator.
pub fn under(generators: &[Generator], contenders: &[Contender]) -> Vec<Contender> {
    let under = |contender: &Contender, generator: &Generator| Contender {
        label: match generator.is_own() {
            true => contender.label.clone(),
            false => format!("{} by {}", contender.label, generator.kind.name()),
        },
        generator: generator.clone(),
        ..contender.clone()
    };
    contenders.iter().flat_map(|contender| generators.iter().map(move |one| under(contender, one))).collect()
}

fn find(named: &Named<'_>, name: &str) -> Result<Target, String> {
    let found = target::find(&[name.to_owned()], named.catalogue).map_err(|error| error.to_string())?;
    found.into_iter().next().ok_or_else(|| format!("there is no target {name}"))
}

fn installed(named: &Named<'_>, name: &str) -> Result<Contender, String> {
    let target = find(named, name)?;
    let said = named.weir.filter(|_| target.name == "weir");
    let (binary, unavailable) = match target.binary(said) {
        _ if !target.has_process() => (PathBuf::new(), None),
        Ok(binary) => (binary, None),
        // A named file that is not a program is an error; a program that is not installed is only marked as missing.
        Err(error) if said.is_some() => return Err(error.to_string()),
        Err(error) => (PathBuf::new(), Some(error.to_string())),
    };
    let manifest = TargetManifest::default();
    Ok(Contender {
        label: target.name.clone(),
        named: Some(name.to_owned()),
        control: false,
        is_named: said.is_some() || target.named_program().is_some(),
        target,
        binary,
        unavailable,
        manifest,
        generator: Generator::own(),
    })
}

fn versioned(
    named: &Named<'_>,
    target: &str,
    spec: &str,
    say: &mut dyn FnMut(&str),
) -> Result<Contender, String> {
    let target = find(named, target)?;
    let spec = VersionSpec::parse(spec).map_err(|error| error.to_string())?;
    let repository = std::env::current_dir().map_err(|error| format!("the current folder: {error}"))?;
    let cache = match (named.cache, &spec) {
        (Some(cache), _) => cache.to_owned(),
        // Nothing is built.
        (None, VersionSpec::Binary(_)) => PathBuf::new(),
        (None, _) => version::default_cache(&repository).map_err(|error| error.to_string())?,
    };
    let built = version::resolve(&spec, &repository, &cache, say).map_err(|error| error.to_string())?;
    let manifest =
        TargetManifest { commit: built.commit.clone(), dirty: built.dirty, ..TargetManifest::default() };
    let version = match spec {
        VersionSpec::Binary(_) => version_of(&target, &built.binary),
        _ => built.label.clone(),
    };
    let label = format!("{}@{version}", target.name);
    Ok(Contender {
        label,
        named: None,
        control: false,
        target,
        binary: built.binary,
        is_named: true,
        unavailable: None,
        manifest,
        generator: Generator::own(),
    })
}
