//! When temporary credentials expire, as AWS writes it.

use std::time::SystemTime;
use time::{Date, Month, Time};

/// Reads a time of UTC such as `2026-11-28T07:00:00Z`, with or without a fraction of the second.
pub(super) fn parse(text: &str) -> Option<SystemTime> {
    let text = text.trim().strip_suffix('Z')?;
    let (date, time) = text.split_once('T')?;
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time.split('.').next()?, ':')?;
    let small = |number: u16| u8::try_from(number).ok();
    let month = Month::try_from(small(month)?).ok()?;
    let date = Date::from_calendar_date(year.into(), month, small(day)?).ok()?;
    let time = Time::from_hms(small(hour)?, small(minute)?, small(second)?).ok()?;
    Some(date.with_time(time).assume_utc().into())
}

fn numbers(text: &str, separator: char) -> Option<[u16; 3]> {
    let numbers: Vec<u16> = text.split(separator).map(|part| part.parse().ok()).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::parse;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn dates_of_aws() {
        let at = Some(UNIX_EPOCH + Duration::from_secs(1_795_849_205));
        assert_eq!(parse("2026-11-28T07:00:05Z"), at);
        assert_eq!(parse("2026-11-28T07:00:05.359Z"), at);
        let wrong = [
            "",
            "2026-11-28",
            "2026-11-28T07:00:05",
            "2026-13-28T07:00:05Z",
            "2026-11-28T07:00Z",
            "a-b-cTd:e:fZ",
        ];
        assert!(wrong.iter().all(|text| parse(text).is_none()));
    }
}
