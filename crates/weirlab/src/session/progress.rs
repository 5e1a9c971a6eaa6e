//! The progress bar, with the time that is left.
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// How far a session is.
pub struct Progress {
    bar: ProgressBar,
    begun: Instant,
    expected: Duration,
    done: Duration,
}

impl Progress {
    /// A bar for work of this expected duration. Nothing is drawn if standard error is not a terminal.
    pub fn new(expected: Duration) -> Progress {
        let bar = ProgressBar::new(1_000);
        let style = ProgressStyle::with_template("{bar:30.cyan} {percent:>3} % {prefix} left  {wide_msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        Progress { bar, begun: Instant::now(), expected, done: Duration::ZERO }
    }

    /// Says what is being done.
    pub fn say(&self, message: impl Into<String>) {
        self.bar.set_message(message.into());
    }

    /// Counts a part by its expected duration. The pace so far predicts the rest.
    pub fn advance(&mut self, part: Duration) {
        self.done += part;
        let share = self.done.as_secs_f64() / self.expected.as_secs_f64().max(1e-9);
        let spent = self.begun.elapsed().as_secs_f64();
        let left = spent / share.max(1e-9) * (1.0 - share).max(0.0);
        self.bar.set_prefix(words(left));
        self.bar.set_position((share.min(1.0) * 1_000.0) as u64);
    }

    /// Prints a line above the bar.
    pub fn line(&self, text: &str) {
        if self.bar.is_hidden() {
            use std::io::Write;
            // A line that cannot be shown is no reason to end a measurement.
            let _ = writeln!(std::io::stderr(), "{text}");
        } else {
            self.bar.println(text);
        }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn words(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    if seconds < 60 { format!("{seconds} s") } else { format!("{} min {:02} s", seconds / 60, seconds % 60) }
}
