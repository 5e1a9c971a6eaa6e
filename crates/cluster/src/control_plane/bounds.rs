//! How much is kept, and logged, of what data planes say.
use crate::Refusal;
use std::collections::BTreeMap;

/// How many labels of a data plane are kept.
pub(super) const MAX_LABELS: usize = 64;

/// The longest key and the longest value of a label, as of Kong.
const MAX_LABEL_LEN: usize = 63;

/// How much of the name of a host is kept, and of a version.
pub(super) const MAX_NAME_LEN: usize = 255;

/// How many refusals of a message are kept.
const MAX_REFUSALS: usize = 20;

/// How much of the place of a refusal is kept.
const MAX_PLACE_LEN: usize = 256;

/// How much of a message for people is kept.
pub(super) const MAX_MESSAGE_LEN: usize = 1024;

/// How many entities that were left out or rewritten are named.
pub(super) const MAX_ALTERED: usize = 100;

/// How many capabilities of a data plane are kept, and how long these may be.
const MAX_CAPABILITIES: usize = 64;
const MAX_CAPABILITY_LEN: usize = 128;

/// The beginning of a text.
pub(super) fn shortened(mut text: String, max: usize) -> String {
    text.truncate(text.floor_char_boundary(max));
    text.shrink_to_fit();
    text
}

/// The labels that Kong would take, up to the limit.
pub(super) fn labels(labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_short = |label: &(String, String)| label.0.len().max(label.1.len()) <= MAX_LABEL_LEN;
    labels.into_iter().filter(is_short).take(MAX_LABELS).collect()
}

/// The names of capabilities that are not too long, up to the limit.
pub(super) fn capabilities(names: Vec<String>) -> Vec<String> {
    let names = names.into_iter().filter(|name| name.len() <= MAX_CAPABILITY_LEN);
    names.take(MAX_CAPABILITIES).map(|name| shortened(name, MAX_CAPABILITY_LEN)).collect()
}

/// The first refusals, each shortened.
pub(super) fn refusals(refusals: Vec<Refusal>) -> Vec<Refusal> {
    let short = |refusal: Refusal| Refusal {
        entity: shortened(refusal.entity, MAX_PLACE_LEN),
        field: refusal.field.map(|field| shortened(field, MAX_PLACE_LEN)),
        message: shortened(refusal.message, MAX_MESSAGE_LEN),
    };
    refusals.into_iter().take(MAX_REFUSALS).map(short).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_cut_between_characters() {
        let long = "ü".repeat(2000);
        let refusal = Refusal { entity: format!("-{long}"), field: Some(long.clone()), message: long };
        let kept = refusals(vec![refusal; 100]);
        let lengths = |refusal: &Refusal| {
            (refusal.entity.len(), refusal.field.as_ref().map(String::len), refusal.message.len())
        };
        assert_eq!((kept.len(), lengths(&kept[0])), (MAX_REFUSALS, (255, Some(256), 1024)));
    }

    #[test]
    fn capabilities_are_few_and_short() {
        let names = ["a".repeat(129)].into_iter().chain((0..100).map(|number| number.to_string()));
        let kept = capabilities(names.collect());
        assert_eq!((kept.len(), kept[0].as_str()), (MAX_CAPABILITIES, "0"));
    }
}
