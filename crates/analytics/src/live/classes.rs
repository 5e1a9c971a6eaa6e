//! The classes of a slot's requests by number, because a few of them occur again and again.
use crate::record::Class;

/// How many classes have a number. Requests of further ones are counted in maps.
pub(super) const MAX_CLASSES: usize = 16;

/// The numbers of classes, in the order in which they first occurred.
#[derive(Debug)]
pub(super) struct Classes {
    numbered: Vec<Class>,
    last: (Class, usize),
}

impl Classes {
    pub(super) fn new() -> Classes {
        Classes { numbered: Vec::with_capacity(MAX_CLASSES), last: (Class::default(), MAX_CLASSES) }
    }

    /// The number of a class; [`MAX_CLASSES`] if it has none.
    #[inline]
    pub(super) fn number(&mut self, class: Class) -> usize {
        if self.last.0 != class {
            self.last = (class, self.find(class));
        }
        self.last.1
    }

    fn find(&mut self, class: Class) -> usize {
        let known = self.numbered.iter().position(|numbered| *numbered == class);
        known.unwrap_or_else(|| {
            let number = self.numbered.len();
            if number < MAX_CLASSES {
                self.numbered.push(class);
            }
            number
        })
    }

    /// Those that have a number, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Class> + '_ {
        self.numbered.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use crate::testing::record;

    #[test]
    fn as_many_classes_as_there_is_room_for_have_a_number() {
        let mut classes = Classes::new();
        let class = |status| Record { status, ..record(1) }.pack().class();
        for _ in 0..2 {
            for status in 0..20 {
                let number = classes.number(class(status));
                assert_eq!(number, usize::from(status).min(MAX_CLASSES));
                assert_eq!(classes.number(class(status)), number, "the last class is remembered");
            }
        }
        assert_eq!(classes.iter().count(), MAX_CLASSES);
    }
}
