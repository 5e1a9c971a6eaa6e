//! The text format of Prometheus.
use std::fmt::{Display, Write};

/// Metrics as text.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
}

impl Exposition {
    /// Begins a metric; its samples follow.
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// A sample.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        let mut separator = '{';
        for (label, value) in labels {
            self.line(format_args!("{separator}{label}=\"{}\"", escaped(value)));
            separator = ',';
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        self.line(format_args!(" {value}\n"));
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.text.write_fmt(text);
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_quoted() {
        let mut text = Exposition::default();
        text.sample("a_total", &[], 1);
        text.sample("b", &[("case", "say \"hi\"\\\n"), ("target", "weir")], 0.5);
        assert_eq!(text.finish(), "a_total 1\nb{case=\"say \\\"hi\\\"\\\\\\n\",target=\"weir\"} 0.5\n");
    }
}
