//! Values that plugins keep with an exchange, by their types.

use std::any::Any;

/// Values by their types, one of each: what one hook of a plugin leaves for the next, or one plugin for another.
#[derive(Default)]
pub struct Extensions(Vec<Box<dyn Any>>);

impl Extensions {
    /// Keeps a value, in the place of one of its type.
    pub fn insert<T: Any>(&mut self, value: T) {
        match self.get_mut() {
            Some(known) => *known = value,
            None => self.0.push(Box::new(value)),
        }
    }

    /// The value of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.iter().find_map(|value| value.downcast_ref())
    }

    /// The same, to be changed.
    pub fn get_mut<T: Any>(&mut self) -> Option<&mut T> {
        self.0.iter_mut().find_map(|value| value.downcast_mut())
    }

    /// Takes the value of this type out.
    pub fn remove<T: Any>(&mut self) -> Option<T> {
        let at = self.0.iter().position(|value| value.is::<T>())?;
        self.0.swap_remove(at).downcast().ok().map(|value| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_value_of_each_type() {
        let mut extensions = Extensions::default();
        extensions.insert(1u8);
        extensions.insert("text");
        extensions.insert(2u8);
        *extensions.get_mut::<u8>().unwrap() += 1;
        assert_eq!((extensions.get::<u8>(), extensions.get::<&str>()), (Some(&3), Some(&"text")));
        assert_eq!((extensions.remove::<u8>(), extensions.remove::<u8>()), (Some(3), None));
        assert_eq!(extensions.get::<u16>(), None);
    }
}
