//! What one process knows and the next one needs: limits, cached responses, metrics, health. Each part is written with its
//! name and length, so that versions that differ in some parts share the others.
use crate::plugins::Definitions;
use rustix::fs::{MemfdFlags, memfd_create};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use weir_plugin::{Handover, Retained};
use weir_upstream::health::{TargetNumbers, TargetStates};

/// The longest name of a part.
const MAX_NAME: u64 = 256;

/// The parts that this program knows.
pub(crate) struct Handovers(Vec<&'static Handover>);

/// The health of targets.
static HEALTH: Handover = Handover {
    name: "health",
    export: |retained, to| {
        let targets = retained.get::<TargetStates>().export();
        serde_json::to_writer(to, &targets).map_err(io::Error::from)
    },
    import: |retained, bytes| {
        let targets: Vec<TargetNumbers> = serde_json::from_slice(bytes).unwrap_or_default();
        retained.get::<TargetStates>().import(&targets);
    },
};

impl Handovers {
    /// Those of the node and of its plugins. Plugins may share one.
    pub(crate) fn new(definitions: Definitions) -> Handovers {
        let mut names = BTreeSet::new();
        let all = definitions.iter().flat_map(|plugin| plugin.handovers).chain([&HEALTH]);
        Handovers(all.filter(|part| names.insert(part.name)).collect())
    }

    /// Writes all parts to a file in memory.
    pub(crate) fn export(&self, retained: &Retained) -> io::Result<File> {
        let file = File::from(memfd_create("weir-state", MemfdFlags::CLOEXEC)?);
        let mut to = BufWriter::new(file);
        for Handover { name, export, .. } in &self.0 {
            to.write_all(&(name.len() as u64).to_le_bytes())?;
            to.write_all(name.as_bytes())?;
            let at = to.stream_position()?;
            to.write_all(&[0; 8])?;
            export(retained, &mut to)?;
            let end = to.stream_position()?;
            to.seek(SeekFrom::Start(at))?;
            to.write_all(&(end - at - 8).to_le_bytes())?;
            to.seek(SeekFrom::Start(end))?;
        }
        let mut file = to.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        Ok(file)
    }

    /// Takes over all parts that are known here.
    pub(crate) fn import(&self, retained: &Retained, file: File) -> io::Result<()> {
        let mut from = BufReader::new(file);
        while !io::BufRead::fill_buf(&mut from)?.is_empty() {
            let name_len = number(&mut from)?;
            let name = block(&mut from, name_len.min(MAX_NAME))?;
            let length = number(&mut from)?;
            let bytes = block(&mut from, length)?;
            if let Some(part) = self.0.iter().find(|part| part.name.as_bytes() == name) {
                (part.import)(retained, &bytes);
            }
        }
        Ok(())
    }
}

fn number(from: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn block(from: &mut impl Read, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match from.take(length).read_to_end(&mut bytes)? as u64 == length {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Text(Mutex<Vec<u8>>);

    static TEXT: Handover = Handover {
        name: "text",
        export: |retained, to| to.write_all(&retained.get::<Text>().0.lock().unwrap()),
        import: |retained, bytes| retained.get::<Text>().0.lock().unwrap().extend(bytes),
    };

    static UNKNOWN: Handover = Handover {
        name: "of another version",
        export: |_, to| to.write_all(&[7; 10_000]),
        import: |_, _| panic!(),
    };

    #[test]
    fn what_is_known_is_taken_over() {
        let (old, new) = (Retained::default(), Retained::default());
        old.get::<Text>().0.lock().unwrap().extend(b"hello");
        let file = Handovers(vec![&UNKNOWN, &TEXT, &HEALTH]).export(&old).unwrap();
        Handovers(vec![&HEALTH, &TEXT]).import(&new, file).unwrap();
        assert_eq!(*new.get::<Text>().0.lock().unwrap(), b"hello");
    }

    #[test]
    fn what_is_cut_off_is_an_error() {
        let old = Retained::default();
        old.get::<Text>().0.lock().unwrap().extend(b"hello");
        let file = Handovers(vec![&TEXT]).export(&old).unwrap();
        file.set_len(18).unwrap();
        assert!(Handovers(vec![&TEXT]).import(&Retained::default(), file).is_err());
    }

    #[test]
    fn every_part_has_a_name_of_its_own() {
        let all = Handovers::new(weir_plugins::PLUGINS);
        for name in ["limits", "sliding limits", "proxy-cache", "prometheus", "health"] {
            assert_eq!(all.0.iter().filter(|part| part.name == name).count(), 1, "{name}");
        }
        assert!(all.0.iter().all(|part| part.name.len() as u64 <= MAX_NAME));
    }
}
