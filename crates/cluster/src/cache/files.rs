//! The folder of a cache: `generation-N.cache`, of which the last two are kept, and `lock`.
use super::block::BlockWriter;
use super::load::Generation;
use super::{CacheError, CacheWarning, CurrentGeneration};
use crate::sync::identity::Digest;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A generation that is not complete.
const PARTIAL: &str = "partial";
/// The last file that could not be used.
const SET_ASIDE: &str = "set-aside";

#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    /// The number of the next generation.
    next: u64,
    /// Held until the cache is closed.
    _lock: File,
}

impl Files {
    pub(super) fn open(folder: &Path) -> Result<Files, CacheError> {
        let create = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        create.map_err(|error| CacheError::io("create", folder, error))?;
        let path = folder.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let lock = lock.map_err(|error| CacheError::io("open", &path, error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Files { folder: folder.to_owned(), next: 1, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(CacheError::Locked(folder.to_owned())),
            Err(TryLockError::Error(error)) => Err(CacheError::io("lock", &path, error)),
        }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn path_of(&self, number: u64) -> PathBuf {
        self.folder.join(format!("generation-{number}.cache"))
    }

    /// The generations, newest first.
    pub(super) fn generations(&mut self) -> Result<Vec<(u64, PathBuf)>, CacheError> {
        self.remove_partial();
        let read = |error| CacheError::io("read", &self.folder, error);
        let names = fs::read_dir(&self.folder).map_err(read)?.map(|entry| entry.map(|it| it.file_name()));
        let names = names.collect::<io::Result<Vec<_>>>().map_err(read)?;
        let number = |name: &str| name.strip_prefix("generation-")?.strip_suffix(".cache")?.parse().ok();
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| number(name.to_str()?)).collect();
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        self.next = numbers.first().map_or(1, |newest| newest.saturating_add(1));
        Ok(numbers.into_iter().map(|number| (number, self.path_of(number))).collect())
    }

    /// Renames a file that cannot be used.
    pub(super) fn set_aside(&self, path: PathBuf, why: String) -> Result<CacheWarning, CacheError> {
        let renamed = self.folder.join(SET_ASIDE);
        fs::rename(&path, &renamed).map_err(|error| CacheError::io("rename", &path, error))?;
        Ok(CacheWarning::SetAside { path, renamed, why })
    }

    /// Continues a generation behind what is intact.
    pub(super) fn resume(
        &self,
        number: u64,
        generation: &Generation,
    ) -> Result<CurrentGeneration, CacheError> {
        let (committed, whole_len) = (generation.position, generation.whole_len);
        let digest = generation.loaded.identity.digest;
        self.continue_at(number, committed).map(|writer| CurrentGeneration {
            number,
            writer,
            digest,
            committed,
            whole_len,
        })
    }

    /// Continues a generation behind what is committed.
    pub(super) fn cut(&self, current: CurrentGeneration) -> Result<CurrentGeneration, CacheError> {
        let CurrentGeneration { number, committed, .. } = current;
        // What it has not written yet must not be written later.
        current.writer.forget();
        let writer = self.continue_at(number, committed)?;
        Ok(CurrentGeneration {
            writer,
            digest: current.digest,
            number,
            committed,
            whole_len: current.whole_len,
        })
    }

    fn continue_at(&self, number: u64, position: u64) -> Result<BlockWriter, CacheError> {
        let path = self.path_of(number);
        let file = OpenOptions::new().write(true).open(&path);
        let file = file.map_err(|error| CacheError::io("open", &path, error))?;
        let own = file.set_permissions(Permissions::from_mode(0o600));
        own.map_err(|error| CacheError::io("change the permissions of", &path, error))?;
        BlockWriter::continuing(path, file, position)
    }

    /// Begins a generation. It has no number that a start looks at until it is published.
    pub(super) fn create(&mut self) -> Result<CurrentGeneration, CacheError> {
        self.remove_partial();
        let path = self.folder.join(PARTIAL);
        let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path);
        let file = file.map_err(|error| CacheError::io("create", &path, error))?;
        let writer = BlockWriter::create(path, file)?;
        let number = self.next;
        Ok(CurrentGeneration { number, writer, digest: Digest::default(), committed: 0, whole_len: 0 })
    }

    /// Gives a complete generation its name, and removes all but the one before.
    pub(super) fn publish(&mut self, number: u64, previous: Option<u64>) -> Result<(), CacheError> {
        let (partial, path) = (self.folder.join(PARTIAL), self.path_of(number));
        let renamed = fs::rename(&partial, &path).and_then(|()| File::open(&self.folder)?.sync_all());
        renamed.map_err(|error| CacheError::io("rename", &partial, error))?;
        for (other, path) in self.generations()? {
            if other != number && Some(other) != previous {
                // It is in no way; the next generation tries again.
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }

    /// Removes a generation that was never completed.
    pub(super) fn remove_partial(&self) {
        let _ = fs::remove_file(self.folder.join(PARTIAL));
    }
}
