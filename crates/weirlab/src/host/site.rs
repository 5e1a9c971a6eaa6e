//! Where a session measures: what starts its targets, the machines by role, and a folder for its files.
use super::guard::Guard;
use super::ssh::Programs;
use super::working_folder::WorkingFolder;
use super::{HostError, Hosts, Local};
use crate::driver::Driver;
use crate::generator::Generator;
use crate::observe::{self, Layout};
use crate::result::{HostManifest, Manifest};
use crate::target::Target;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The machines and the driver of a session. Dropping it ends what runs there and puts back what was changed.
pub struct Site {
    /// What starts targets.
    pub driver: Box<dyn Driver>,
    /// The machines, by role.
    pub hosts: Hosts,
    /// A folder on the target's machine.
    pub folder: PathBuf,
    /// Whether another session was running when this one began.
    pub other_session_running: bool,
    /// What the user should know before the measurement.
    pub warnings: Vec<String>,
    pub(super) elsewhere: Option<Elsewhere>,
    pub(super) working_folder: WorkingFolder,
    /// Declared after the working folder, because that must be removed first.
    pub(super) _guard: Guard,
}

/// What is known of machines other than this.
pub(super) struct Elsewhere {
    pub(super) layout: Box<dyn Fn(usize) -> Layout>,
    pub(super) machines: BTreeMap<String, HostManifest>,
    pub(super) target: Programs,
    pub(super) generator: Programs,
}

/// A folder of this machine for a session, and the process that clears it should the session be killed.
pub(super) fn working_folder(driver: &dyn Driver) -> io::Result<(WorkingFolder, Guard)> {
    let folder = WorkingFolder::begin(&std::env::temp_dir(), driver)?;
    let name = if driver.name() == "docker" { "docker" } else { "process" };
    let guard = Guard::start(&std::env::current_exe()?, folder.path(), name)?;
    Ok((folder, guard))
}

impl Site {
    /// This machine alone.
    ///
    /// # Errors
    /// When the working folder cannot be made, or the guard does not start.
    pub fn local(driver: Box<dyn Driver>) -> Result<Site, HostError> {
        let failed = |error| HostError::Unusable(format!("cannot set up the working folder: {error}"));
        let (working_folder, guard) = working_folder(&*driver).map_err(failed)?;
        let local = Arc::new(Local::new(working_folder.path()).map_err(failed)?);
        Ok(Site {
            driver,
            hosts: Hosts { target: local.clone(), upstream: local.clone(), generator: local },
            folder: working_folder.path().to_owned(),
            other_session_running: working_folder.other_session_running,
            warnings: Vec::new(),
            elsewhere: None,
            working_folder,
            _guard: guard,
        })
    }

    /// Which CPUs the parts of a measurement get.
    #[must_use]
    pub fn layout(&self, workers: usize) -> Layout {
        match &self.elsewhere {
            Some(elsewhere) => (elsewhere.layout)(workers),
            None => Layout::plan(&observe::allowed_cpus(), workers),
        }
    }

    /// Whether targets run on another machine.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        self.elsewhere.is_some()
    }

    /// A folder of this machine, wherever targets run. What is started in it ends with the session, also if that is killed.
    #[must_use]
    pub fn working_folder(&self) -> &Path {
        self.working_folder.path()
    }

    /// Where a target's program is on the machine that it runs on: what this project has built, or what was named, is
    /// copied there. `here` is where it is on this machine, if it is; `is_named` says whether the user named it.
    ///
    /// # Errors
    /// When it cannot be copied. The inner error says how to install it, where it is not there.
    pub fn program(
        &self,
        target: &Target,
        here: Option<&Path>,
        is_named: bool,
    ) -> Result<Result<PathBuf, String>, HostError> {
        match &self.elsewhere {
            Some(elsewhere) => elsewhere.target.locate(target, here, is_named),
            None => Ok(here.map(Path::to_owned).ok_or_else(String::new)),
        }
    }

    /// Finds a generator of another maker on the machine that the load comes from: the one that was named here is copied
    /// there, else it is the one that is installed there, else that of this machine, copied. On this machine it was found.
    ///
    /// # Errors
    /// When there is none, with how to install it.
    pub fn find_generator(&self, generator: &mut Generator) -> Result<(), HostError> {
        if let Some(elsewhere) = self.elsewhere.as_ref().filter(|_| !generator.is_own()) {
            *generator = elsewhere.generator.generator(generator.kind)?;
        }
        Ok(())
    }

    /// Adds the machines to a manifest; what it says of one machine is of the target's.
    pub fn describe(&self, manifest: &mut Manifest) {
        let Some(elsewhere) = &self.elsewhere else { return };
        let of_target =
            elsewhere.machines.values().find(|host| host.roles.iter().any(|role| role == "target"));
        if let Some(host) = of_target {
            manifest.kernel.clone_from(&host.kernel);
            manifest.cpu.clone_from(&host.cpu);
            manifest.cpus = host.cpus;
            manifest.memory_mib = host.memory_mib;
            manifest.machine.clone_from(&host.machine);
        }
        manifest.hosts.clone_from(&elsewhere.machines);
    }
}
