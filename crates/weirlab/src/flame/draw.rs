//! Graphs from folded stacks.
use super::{FlameError, read};
use inferno::differential::Options as Difference;
use inferno::flamegraph::color::{BasicPalette, MultiPalette};
use inferno::flamegraph::{Options, Palette, from_reader};
use std::io;
use std::path::Path;

/// A graph of folded stacks. Rust's own library, other Rust code, and the rest (C and the kernel) have hues of their
/// own; the same name has the same colour in every graph.
///
/// # Errors
/// When there is nothing to draw.
pub fn graph(folded: &str, title: &str, subtitle: &str) -> Result<Vec<u8>, FlameError> {
    let mut options = styled(title, subtitle);
    options.colors = Palette::Multi(MultiPalette::Rust);
    drawn(&mut options, folded.as_bytes())
}

/// What the second profile does more (red) or less (blue) than the first; the widths are the second's. The numbers of
/// samples are made equal, so that a longer recording is no difference.
///
/// # Errors
/// When a profile cannot be read, or there is nothing to draw.
pub fn differential(before: &Path, after: &Path, title: &str) -> Result<Vec<u8>, FlameError> {
    let difference = Difference { normalize: true, ..Difference::default() };
    let mut folded = Vec::new();
    let (first, second) = (read(before)?, read(after)?);
    inferno::differential::from_readers(difference, first.as_slice(), second.as_slice(), &mut folded)
        .map_err(|error| FlameError::Draw(error.to_string()))?;
    let mut options = styled(title, "red: more, blue: less; widths are of the second");
    options.colors = Palette::Basic(BasicPalette::Hot);
    drawn(&mut options, &folded)
}

fn styled(title: &str, subtitle: &str) -> Options<'static> {
    let mut options = Options::default();
    options.title = title.to_owned();
    options.subtitle = Some(subtitle.to_owned());
    options.count_name = "samples".to_owned();
    options.deterministic = true;
    options.font_type = "ui-monospace, monospace".to_owned();
    options.min_width = 0.05;
    options
}

fn drawn(options: &mut Options<'_>, folded: &[u8]) -> Result<Vec<u8>, FlameError> {
    let mut picture = Vec::new();
    match from_reader(options, folded, &mut picture) {
        Ok(()) => Ok(picture),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(FlameError::Draw("there are no stacks".to_owned()))
        }
        Err(error) => Err(FlameError::Draw(error.to_string())),
    }
}
