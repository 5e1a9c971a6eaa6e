//! Programs on a host: copies of what this project has built or the user named, and what is installed there.
use super::connection::Connection;
use crate::generator::{Generator, Kind};
use crate::host::HostError;
use crate::host::agent::protocol::Request;
use crate::target::Target;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Programs on a host.
pub(in crate::host) struct Programs {
    connection: Arc<Connection>,
    /// Where copies are, by the path here.
    copies: Mutex<HashMap<PathBuf, PathBuf>>,
}

impl Programs {
    pub(super) fn new(connection: Arc<Connection>) -> Programs {
        Programs { connection, copies: Mutex::default() }
    }

    /// As [`Site::program`](crate::host::Site::program).
    pub(in crate::host) fn locate(
        &self,
        target: &Target,
        here: Option<&Path>,
        is_named: bool,
    ) -> Result<Result<PathBuf, String>, HostError> {
        if target.is_built_in() {
            return Ok(self.connection.find(&[])?.ok_or_else(String::new));
        }
        if let Some(own) = here.filter(|here| is_named || target.is_own(here)) {
            return self.copied(own).map(Ok);
        }
        let candidates = target.candidates_elsewhere();
        let found = if candidates.is_empty() { None } else { self.connection.find(&candidates)? };
        Ok(found.ok_or_else(|| {
            format!(
                "{} is not on host {} ({}). Install it there: {}. Or name a program here with {}=PATH: it is copied",
                target.title,
                self.connection.host.name,
                candidates.join(", "),
                target.install(),
                target.override_variable()
            )
        }))
    }

    /// As [`Site::find_generator`](crate::host::Site::find_generator).
    pub(in crate::host) fn generator(&self, kind: Kind) -> Result<Generator, HostError> {
        if let Some(named) = kind.named_program() {
            let found = self.copied_generator(kind, &named)?;
            return found.ok_or_else(|| self.no_generator(kind, Some(&named)));
        }
        let installed =
            self.connection.call::<Option<Generator>>(Request::Generator { kind, program: None })?;
        if let Some(installed) = installed {
            return Ok(installed);
        }
        let here = kind.program();
        let copied = here.as_deref().map(|here| self.copied_generator(kind, here)).transpose()?.flatten();
        copied.ok_or_else(|| self.no_generator(kind, here.as_deref()))
    }

    /// A copy of this program, if it runs on the host.
    fn copied_generator(&self, kind: Kind, here: &Path) -> Result<Option<Generator>, HostError> {
        let program = Some(self.copied(here)?);
        self.connection.call(Request::Generator { kind, program })
    }

    /// `here` is what was copied and does not run there.
    fn no_generator(&self, kind: Kind, here: Option<&Path>) -> HostError {
        let copy = here.map(|here| {
            format!(
                ", and a copy of {} does not run there: its architecture or libraries are others",
                here.display()
            )
        });
        let what = format!("the generator {} is not on it{}", kind.name(), copy.unwrap_or_default());
        let fix = format!(
            "install it there, on the PATH that its sshd gives: {}; or name a program here that runs there, by {}=PATH: it is copied",
            kind.installation(),
            kind.variable()
        );
        self.connection.host.unusable("roles", &what, &fix)
    }

    fn copied(&self, program: &Path) -> Result<PathBuf, HostError> {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(copy) = copies.get(program) {
            return Ok(copy.clone());
        }
        let copy = PathBuf::from(self.connection.master.upload(program)?);
        copies.insert(program.to_owned(), copy.clone());
        Ok(copy)
    }
}
