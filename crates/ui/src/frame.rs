//! The frame of time that a page shows, as its address has it.
use crate::form::{Pairs, first};
use crate::format::time;
use crate::page::Visit;
use crate::texts;
use crate::url::Address;
use maud::{Markup, html};
use std::time::{SystemTime, UNIX_EPOCH};

/// The frames that are one click away, with their names alone and in a sentence.
const CHOICES: [(&str, &str, &str); 4] = [
    ("-10m", "frame.10m", "frame.last_10m"),
    ("-1h", "frame.1h", "frame.last_1h"),
    ("-24h", "frame.24h", "frame.last_24h"),
    ("-7d", "frame.7d", "frame.last_7d"),
];

/// The multiple of seconds at which a frame begins that is not longer than the second number. Answers of every
/// resolution then have the same edges.
const ALIGNED: [(u64, u64); 2] = [(10, 2 * 3_600), (60, 25 * 3_600)];
const COARSEST: u64 = 3_600;

/// A longer frame may be that of a Prometheus server, and is refreshed each minute.
const LONG: u64 = 3_660;

/// A frame of time, in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Whether it ends now and moves on.
    pub(crate) is_live: bool,
    /// This moment, in milliseconds since 1970.
    pub(crate) now: u64,
    /// As the address has them; empty where it says nothing.
    given: [String; 2],
    default: &'static str,
}

impl Frame {
    /// The frame that an address asks for, and notes on what in it is not understood.
    pub(crate) fn read(asked: &Pairs, default: &'static str) -> (Frame, Vec<String>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        Frame::at(asked, default, now)
    }

    fn at(asked: &Pairs, default: &'static str, now: u64) -> (Frame, Vec<String>) {
        let (begin, end) = (first(asked, "from"), first(asked, "to"));
        let seconds = now / 1_000;
        let read = |name, given: &str| match given {
            "" => Ok(None),
            given => moment(given, seconds + 1).map(Some).ok_or_else(|| texts::overlooked(name, given)),
        };
        let (from, to) = match (read("from", begin), read("to", end)) {
            (Ok(from), Ok(to)) => (from, to),
            (from, to) => {
                let notes = [from.err(), to.err()].into_iter().flatten().collect();
                return (Frame::of_default(default, now), notes);
            }
        };
        let is_live = matches!(end, "" | "now");
        let to = to.unwrap_or(seconds + 1);
        let from = from.or_else(|| moment(default, to)).unwrap_or(0);
        if from >= to || from > seconds {
            return (Frame::of_default(default, now), vec![texts::empty_frame(begin, end)]);
        }
        let from = if begin.is_empty() || begin.starts_with('-') { aligned(from, to) } else { from };
        (Frame { from, to, is_live, now, given: [begin, end].map(str::to_owned), default }, Vec::new())
    }

    fn of_default(default: &'static str, now: u64) -> Frame {
        Frame::at(&Pairs::new(), default, now).0
    }

    /// The step between points for so many of them, in seconds.
    pub(crate) fn step(&self, points: u64) -> u64 {
        (self.to - self.from).div_ceil(points).max(1)
    }

    /// How much of an interval has passed in this frame, in seconds.
    pub(crate) fn elapsed(&self, start: u64, step: u64) -> f64 {
        let end = (start + step).min(self.to) as f64;
        end.min(self.now as f64 / 1e3) - start.max(self.from) as f64
    }

    /// How much of the frame has passed since the history began, in seconds; at least one.
    pub(crate) fn seconds_since(&self, oldest: Option<u64>) -> f64 {
        let end = (self.to as f64).min(self.now as f64 / 1e3);
        (end - oldest.unwrap_or(0).max(self.from) as f64).max(1.0)
    }

    /// After how many seconds a page shows the frame anew, where it shows a short one after so many; none if it does not
    /// move on.
    pub(crate) fn refresh(&self, seconds: u64) -> Option<u64> {
        let is_long = self.to - self.from > LONG;
        self.is_live.then_some(if is_long { 60 } else { seconds })
    }

    /// The address with this frame.
    pub(crate) fn on(&self, address: Address) -> Address {
        let [from, to] = &self.given;
        address.with("from", from).with("to", to)
    }

    /// The address with this frame, for a page whose default may be another.
    pub(crate) fn carried(&self, address: Address) -> Address {
        let [from, to] = &self.given;
        let from = if from.is_empty() && to.is_empty() { self.default } else { from };
        address.with("from", from).with("to", to)
    }

    /// The address with this frame, for what knows no dates: the Admin API and the list of requests.
    pub(crate) fn in_seconds(&self, address: Address) -> Address {
        let is_relative = self.is_live && self.chosen().starts_with('-');
        let from = if is_relative { self.chosen().to_owned() } else { self.from.to_string() };
        let to = if self.is_live { String::new() } else { self.to.to_string() };
        address.with("from", &from).with("to", &to)
    }

    /// What the frame is, in words.
    pub(crate) fn words(&self) -> String {
        if let Some((.., words)) = CHOICES.iter().find(|(value, ..)| self.is_live && *value == self.chosen())
        {
            return texts::of(words).to_owned();
        }
        let [from, to] = [self.from, self.to].map(|at| time(at as i64));
        texts::filled("frame.from_to", &[("from", &from), ("to", &to)])
    }

    fn chosen(&self) -> &str {
        if self.given[0].is_empty() { self.default } else { &self.given[0] }
    }

    /// The choice of another frame for the page at an address.
    pub(crate) fn picker(&self, visit: &Visit, address: &Address) -> Markup {
        let is_chosen = |value: &str| self.is_live && value == self.chosen();
        let is_custom = !CHOICES.iter().any(|(value, ..)| is_chosen(value));
        let free = address.clone().with("page", "");
        html! {
            nav.frames aria-label=(texts::of("frame.frame_of_time")) {
                ul.segments {
                    @for (value, name, _) in CHOICES {
                        @let to = free.clone().with("to", "").with("from", if value == self.default { "" } else { value });
                        li { a href=(visit.at(&to.to_string())) aria-current=[is_chosen(value).then_some("true")] { (texts::of(name)) } }
                    }
                }
                details.custom open[is_custom] {
                    summary { (texts::of("frame.other_times")) }
                    form action=(visit.at(address.path())) {
                        @for (name, value) in free.members().filter(|(name, _)| !matches!(*name, "from" | "to")) {
                            input type="hidden" name=(name) value=(value);
                        }
                        label for="from" { (texts::of("words.from")) } (moment_input("from", self.from))
                        label for="to" { (texts::of("frame.to")) } (moment_input("to", self.to))
                        span.help { "UTC" }
                        button { (texts::of("frame.show")) }
                    }
                }
            }
        }
    }
}

fn moment_input(name: &str, seconds: u64) -> Markup {
    let shown = time(seconds as i64);
    let value = format!("{}T{}", &shown[..10], &shown[11..19]);
    html! { input id=(name) type="datetime-local" step="1" name=(name) value=(value); }
}

/// The next multiple of what answers are aligned to.
fn aligned(from: u64, to: u64) -> u64 {
    let width =
        ALIGNED.iter().find(|(_, longest)| to - from <= *longest).map_or(COARSEST, |(width, _)| *width);
    Some(from.next_multiple_of(width)).filter(|aligned| *aligned < to).unwrap_or(from)
}

/// Seconds since 1970, `now`, a time before that such as `-10m`, or `2026-11-23T20:15:00` in UTC.
fn moment(text: &str, now: u64) -> Option<u64> {
    let moment = match text.strip_prefix('-') {
        Some(ago) => now.checked_sub(duration(ago)?)?,
        None if text == "now" => now,
        None => text.parse().ok().or_else(|| calendar(text))?,
    };
    Some(moment).filter(|moment| *moment <= u64::from(u32::MAX))
}

fn duration(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// A date and a time of day as inputs of browsers have them.
fn calendar(text: &str) -> Option<u64> {
    let (date, clock) = text.split_once('T')?;
    let numbers = |text: &str, by| text.split(by).map(|part| part.parse().ok()).collect::<Option<Vec<u64>>>();
    let (date, clock) = (numbers(date, '-')?, numbers(clock, ':')?);
    let &[year @ 1970..=2106, month @ 1..=12, day @ 1..=31] = &date[..] else { return None };
    let &[hour @ 0..=23, minute @ 0..=59, ref seconds @ ..] = &clock[..] else { return None };
    let second = match *seconds {
        [] => 0,
        [second @ 0..=60] => second,
        _ => return None,
    };
    Some(day_number(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// The days since 1970 of a civil date. The year begins in March, so that a leap day is its last.
fn day_number(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-23 18:04:44.5
    const NOW: u64 = 1_795_457_084_500;

    fn read(from: &str, to: &str) -> (Frame, Vec<String>) {
        let asked = [("from", from), ("to", to)].map(|(name, value)| (name.to_owned(), value.to_owned()));
        Frame::at(&asked.to_vec(), "-10m", NOW)
    }

    #[test]
    fn a_frame_is_what_the_address_says() {
        for (from, to, expected) in [
            ("", "", (1_795_456_490, 1_795_457_085, true)),
            ("-10m", "now", (1_795_456_490, 1_795_457_085, true)),
            ("-24h", "", (1_795_370_700, 1_795_457_085, true)),
            ("1795457000", "1795457010", (1_795_457_000, 1_795_457_010, false)),
            ("2026-11-23T18:00:00", "2026-11-23T18:01", (1_795_456_800, 1_795_456_860, false)),
        ] {
            let (frame, notes) = read(from, to);
            assert_eq!(((frame.from, frame.to, frame.is_live), notes), (expected, Vec::new()), "{from} {to}");
        }
    }

    #[test]
    fn nonsense_gives_the_default_and_a_note() {
        let (expected, _) = read("", "");
        for (from, to) in [
            ("xyz", ""),
            ("-10w", ""),
            ("5", "4"),
            ("99999999999", ""),
            ("1795457085", ""),
            ("2026-13-01T00:00", ""),
            ("2026-11-23T18:00:18446744073709551615", ""),
            ("2026-11-23T18:00:61", ""),
            ("2026-11-23T18:00:0:0:0", ""),
            ("", "\u{202e}"),
        ] {
            let (frame, notes) = read(from, to);
            assert_eq!((frame, notes.len()), (expected.clone(), 1), "{from} {to}");
        }
    }

    #[test]
    fn a_long_frame_is_refreshed_each_minute() {
        for (from, to, expected) in
            [("-10m", "", Some(3)), ("-1h", "", Some(3)), ("-2h", "", Some(60)), ("-2h", "-1h", None)]
        {
            let asked = vec![("from".to_owned(), from.to_owned()), ("to".to_owned(), to.to_owned())];
            assert_eq!(Frame::at(&asked, "-1h", 1_795_457_541_000).0.refresh(3), expected, "{from} {to}");
        }
    }

    #[test]
    fn an_interval_that_has_begun_counts_for_what_has_passed() {
        let (frame, _) = read("", "");
        assert_eq!((frame.elapsed(1_795_457_084, 1), frame.elapsed(1_795_457_000, 10)), (0.5, 10.0));
        assert_eq!(frame.elapsed(1_795_456_480, 60), 50.0);
        assert_eq!([None, Some(1_795_457_000)].map(|oldest| frame.seconds_since(oldest)), [594.5, 84.5]);
    }

    #[test]
    fn a_frame_is_carried_to_other_pages() {
        let address = || Address::new("errors");
        assert_eq!(read("", "").0.on(address()).to_string(), "errors");
        assert_eq!(read("", "").0.carried(address()).to_string(), "errors?from=-10m");
        assert_eq!(read("-1h", "").0.on(address()).to_string(), "errors?from=-1h");
    }

    #[test]
    fn days_are_counted_as_the_calendar_does() {
        for (text, day) in
            [("1970-01-01T00:00", 0), ("2000-02-29T00:00", 11_016), ("2026-11-23T00:00", 20_780)]
        {
            assert_eq!(calendar(text), Some(day * 86_400), "{text}");
        }
    }
}
