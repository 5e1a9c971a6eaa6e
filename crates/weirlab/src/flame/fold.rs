//! From what `perf script` prints to folded stacks.
use super::FlameError;
use inferno::collapse::Collapse;
use inferno::collapse::perf::{Folder, Options};
use std::collections::{BTreeMap, HashMap};

/// What perf calls a frame that it could not go beyond.
const CUT: &str = "[unknown]";

/// Folds stacks, with names as their authors wrote them, and those that were cut off put where they belong.
pub(super) fn fold(script: &[u8]) -> Result<String, FlameError> {
    let mut options = Options::default();
    options.annotate_kernel = true;
    let mut folded = Vec::new();
    let collapsed = Folder::from(options).collapse(script, &mut folded);
    collapsed.map_err(|error| FlameError::Draw(error.to_string()))?;
    let folded = String::from_utf8_lossy(&folded);
    let stacks = folded.lines().filter_map(parse).collect::<Vec<_>>();
    let mut merged: BTreeMap<String, u64> = BTreeMap::new();
    let roots = Roots::of(&stacks);
    for (frames, count) in stacks {
        *merged.entry(roots.complete(frames).join(";")).or_default() += count;
    }
    Ok(merged.into_iter().map(|(stack, count)| format!("{stack} {count}\n")).collect())
}

/// How many samples folded stacks hold.
pub(super) fn count(folded: &str) -> u64 {
    folded.lines().filter_map(parse).map(|(_, count)| count).sum()
}

fn parse(line: &str) -> Option<(Vec<String>, u64)> {
    let (stack, count) = line.rsplit_once(' ')?;
    let frames = stack.split(';').map(|frame| format!("{:#}", rustc_demangle::demangle(frame)));
    Some((frames.collect(), count.parse().ok()?))
}

/// For each function, the callers it mostly has in stacks that are whole. Only as much of a stack is copied with a sample
/// as fits; a deep one lacks its outermost frames, which are the same for all requests.
struct Roots(HashMap<String, Vec<String>>);

impl Roots {
    fn of(stacks: &[(Vec<String>, u64)]) -> Roots {
        let mut seen: HashMap<&str, BTreeMap<&[String], u64>> = HashMap::new();
        for (frames, count) in stacks.iter().filter(|(frames, _)| !is_cut(frames)) {
            for (place, frame) in frames.iter().enumerate().skip(1) {
                *seen.entry(frame).or_default().entry(&frames[..place]).or_default() += count;
            }
        }
        let roots = seen.into_iter().filter_map(|(frame, callers)| {
            let (mostly, _) = callers.into_iter().max_by_key(|(_, count)| *count)?;
            Some((frame.to_owned(), mostly.to_vec()))
        });
        Roots(roots.collect())
    }

    fn complete(&self, frames: Vec<String>) -> Vec<String> {
        if !is_cut(&frames) {
            return frames;
        }
        let known: Vec<String> = frames.iter().skip(1).skip_while(|frame| *frame == CUT).cloned().collect();
        let root = known.first().and_then(|outermost| self.0.get(outermost));
        match root {
            Some(callers) => callers.iter().cloned().chain(known).collect(),
            None => frames,
        }
    }
}

fn is_cut(frames: &[String]) -> bool {
    frames.get(1).is_some_and(|frame| frame == CUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(frames: &[&str]) -> String {
        let frames: String =
            frames.iter().map(|frame| format!("\t    1000 {frame}+0x1 (/usr/bin/x)\n")).collect();
        format!("weir 12 1.000000: cpu-clock:\n{frames}\n")
    }

    #[test]
    fn stacks_are_folded_from_the_outermost_frame_on() {
        let script =
            event(&["leaf", "middle", "main"]) + &event(&["leaf", "middle", "main"]) + &event(&["main"]);
        let folded = fold(script.as_bytes()).unwrap_or_default();
        assert_eq!(folded, "weir;main 1\nweir;main;middle;leaf 2\n");
        assert_eq!(count(&folded), 3);
    }

    #[test]
    fn a_stack_that_was_cut_off_is_put_where_its_function_is_called() {
        let cut = "weir 12 1.000000: cpu-clock:\n\t 1000 read+0x1 (/x)\n\t 1000 serve+0x1 (/x)\n\tffffffffffffffff [unknown] ([unknown])\n\n";
        let script = event(&["write", "serve", "main"]) + cut;
        let folded = fold(script.as_bytes()).unwrap_or_default();
        assert_eq!(folded, "weir;main;serve;read 1\nweir;main;serve;write 1\n");
    }

    #[test]
    fn names_are_as_they_were_written() {
        let script = event(&["_ZN4weir5serve17h0123456789abcdefE", "_RNvCs1234_7mycrate3foo"]);
        let folded = fold(script.as_bytes()).unwrap_or_default();
        assert!(folded.contains("mycrate::foo;weir::serve "), "{folded}");
    }
}
