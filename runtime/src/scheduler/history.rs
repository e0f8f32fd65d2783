//! Record of why pages are not in the index, of bounded size, for statistics.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Hash of all tokens up to the end of a page. Nothing but statistics depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Chain(u64);

impl Chain {
    /// The chain with the tokens of one more page.
    pub fn with(self, tokens: &[u32]) -> Chain {
        let mut hasher = DefaultHasher::new();
        (self.0, tokens).hash(&mut hasher);
        Chain(hasher.finish())
    }
}

/// Why a page is not in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// Nothing is known about these tokens.
    New,
    /// The page was taken for other tokens.
    Evicted,
    /// The tokens are known, but some of them were chosen: decode steps have processed them.
    Generated,
}

/// Reasons why pages are not in the index: those of the latest pages, up to a maximum number.
pub(super) struct History {
    reasons: HashMap<Chain, Miss>,
    order: VecDeque<Chain>,
    most: usize,
}

impl History {
    /// A history of at most `most` pages.
    pub fn new(most: usize) -> History {
        History { reasons: HashMap::new(), order: VecDeque::new(), most }
    }

    /// Remembers a page.
    pub fn add(&mut self, chain: Chain, reason: Miss) {
        if self.reasons.insert(chain, reason).is_some() {
            return;
        }
        self.order.push_back(chain);
        if self.order.len() > self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.reasons.remove(&oldest);
        }
    }

    /// Why a page is missing.
    pub fn of(&self, chain: Chain) -> Miss {
        self.reasons.get(&chain).copied().unwrap_or(Miss::New)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_pages_are_remembered() {
        let mut history = History::new(2);
        let pages = [1u32, 2, 3].map(|first| Chain::default().with(&[first, 9]));
        history.add(pages[0], Miss::Evicted);
        history.add(pages[0], Miss::Generated);
        history.add(pages[1], Miss::Evicted);
        assert_eq!(pages.map(|page| history.of(page)), [Miss::Generated, Miss::Evicted, Miss::New]);
        history.add(pages[2], Miss::Evicted);
        assert_eq!(pages.map(|page| history.of(page)), [Miss::New, Miss::Evicted, Miss::Evicted]);
        assert_ne!(pages[0].with(&[2, 9]), pages[1].with(&[1, 9]));
    }
}
