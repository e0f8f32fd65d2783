//! Stop strings: texts that end a generation.

/// Search for stop strings in a text that arrives in parts.
///
/// The first occurrence is the one that ends first; of several that end at the same character, the longest. It does not
/// depend on how the text is divided into parts. Text that may be the start of a stop string is held back.
pub(super) struct StopStrings {
    stops: Vec<String>,
    /// Length in bytes of the longest stop string.
    longest: usize,
    /// End of the text, held back: the start of a stop string.
    held: String,
}

/// Text that a part releases.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Released {
    /// Text before any stop string.
    pub text: String,
    /// Whether a stop string follows `text`.
    pub stopped: bool,
}

impl StopStrings {
    /// Creates a search for `stops`. An empty string is ignored.
    pub fn new(stops: &[String]) -> StopStrings {
        let stops: Vec<String> = stops.iter().filter(|stop| !stop.is_empty()).cloned().collect();
        let longest = stops.iter().map(String::len).max().unwrap_or(0);
        StopStrings { stops, longest, held: String::new() }
    }

    /// Adds a part of the text, and returns the text that is certainly before every stop string.
    pub fn push(&mut self, part: &str) -> Released {
        self.held.push_str(part);
        if let Some(start) = self.first_occurrence() {
            self.held.truncate(start);
            return Released { text: std::mem::take(&mut self.held), stopped: true };
        }
        let kept = self.held.split_off(self.certain());
        Released { text: std::mem::replace(&mut self.held, kept), stopped: false }
    }

    /// Ends the search: returns the text that was held back.
    pub fn finish(self) -> String {
        self.held
    }

    /// Offset of the first occurrence of a stop string.
    fn first_occurrence(&self) -> Option<usize> {
        let occurrences = self.stops.iter().filter_map(|stop| {
            let start = self.held.find(stop.as_str())?;
            Some((start + stop.len(), start))
        });
        occurrences.min().map(|(_, start)| start)
    }

    /// Length of the text before the first character that may start a stop string.
    fn certain(&self) -> usize {
        let may_start = |at: &usize| {
            self.held.is_char_boundary(*at)
                && self.stops.iter().any(|stop| stop.starts_with(&self.held[*at..]))
        };
        let end = self.held.len();
        (end.saturating_sub(self.longest)..end).find(may_start).unwrap_or(end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The released parts, the text held back at the end, and whether a stop string was found.
    fn run(stops: &[&str], parts: &[&str]) -> (Vec<String>, String, bool) {
        let stops: Vec<String> = stops.iter().map(|&stop| stop.to_owned()).collect();
        let mut search = StopStrings::new(&stops);
        let mut released = Vec::new();
        for part in parts {
            let Released { text, stopped } = search.push(part);
            released.push(text);
            if stopped {
                return (released, search.finish(), true);
            }
        }
        (released, search.finish(), false)
    }

    #[test]
    fn text_is_held_back_until_it_is_decided() {
        for (stops, parts, released, rest, stopped) in [
            (&["\n\n"][..], &["one", "\n", "two\n", "\nthree"][..], &["one", "", "\ntwo", ""][..], "", true),
            (&["User:"], &["Us", "er", " name"], &["", "", "User name"], "", false),
            (&["User:"], &["a Us", "er"], &["a ", ""], "User", false),
            (&["aab"], &["a", "a", "a", "b"], &["", "", "a", ""], "", true),
            // The first occurrence is the one that ends first.
            (&["abcd", "bc"], &["xabcd"], &["xa"], "", true),
            // Of two that end at the same character, the longest.
            (&["c", "abc"], &["xab", "c"], &["x", ""], "", true),
            (&["é"], &["caf", "é!"], &["caf", ""], "", true),
            (&["世界"], &["世", "世", "界"], &["", "世", ""], "", true),
            (&[""], &["a", "b"], &["a", "b"], "", false),
            (&[], &["a", "b"], &["a", "b"], "", false),
        ] {
            let (texts, held, found) = run(stops, parts);
            assert_eq!(texts, released, "{stops:?} in {parts:?}");
            assert_eq!((held.as_str(), found), (rest, stopped), "{stops:?} in {parts:?}");
        }
    }

    /// Text before the first occurrence of a stop string, by trying every end.
    fn before_first(text: &str, stops: &[String]) -> Option<String> {
        let mut ends = text.char_indices().map(|(at, char)| at + char.len_utf8());
        ends.find_map(|end| {
            let head = &text[..end];
            let longest = stops.iter().filter(|stop| head.ends_with(*stop)).map(String::len).max()?;
            Some(head[..end - longest].to_owned())
        })
    }

    proptest! {
        /// Short texts of three characters, one of them of two bytes, so that stop strings are frequent and overlap.
        #[test]
        fn any_division_gives_the_text_before_the_first_stop_string(
            text in "[abé]{0,40}",
            stops in prop::collection::vec("[abé]{1,5}", 0..4),
            lengths in prop::collection::vec(1usize..6, 40),
        ) {
            let mut search = StopStrings::new(&stops);
            let mut chars = text.chars();
            let (mut output, mut stopped) = (String::new(), false);
            for length in lengths {
                let part: String = chars.by_ref().take(length).collect();
                let released = search.push(&part);
                output += &released.text;
                stopped |= released.stopped;
                if stopped {
                    break;
                }
                // No more is held back than the start of a stop string.
                let held = &search.held;
                prop_assert!(held.is_empty() || stops.iter().any(|stop| stop.starts_with(held.as_str())));
            }
            let expected = before_first(&text, &stops);
            prop_assert_eq!(stopped, expected.is_some());
            if !stopped {
                output += &search.finish();
            }
            prop_assert_eq!(output, expected.unwrap_or(text));
        }
    }
}
