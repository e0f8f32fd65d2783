//! The page pool: reference counts, the pages of finished sequences, and pages that several sequences share.
//!
//! A page is free, in use by one or more sequences, or cached: in use by none, but with keys and values of known tokens.
//! The index finds a full page by its tokens and all tokens before it: its key is the id of the prefix that ends with the
//! page before, and the page's own tokens. Keys are compared whole, so that equal hashes cannot mix up two prefixes.
//!
//! A page that a prompt has filled in part is cached, too. Since a sequence that continues it writes to it, one sequence takes it over.

use std::collections::{BTreeMap, HashMap};

use super::history::{Chain, History, Miss};
use super::steps::PAGE;

/// Id of a prefix: of all tokens up to the end of a page. Ids are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Prefix(u64);

impl Prefix {
    /// The prefix without tokens.
    pub const EMPTY: Prefix = Prefix(0);
}

/// Key of a page in the index: the prefix before it, and its tokens.
type Key = (Prefix, Box<[u32]>);

/// Numbers of pages by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Pages without contents.
    pub free: u32,
    /// Pages that no sequence uses, kept for prompts with the same tokens.
    pub cached: u32,
    /// Pages that sequences use.
    pub used: u32,
}

#[derive(Default)]
struct Page {
    /// Number of sequences that use the page.
    references: u32,
    /// The page's key in the index, if it is there.
    key: Option<Key>,
    /// The tokens up to the page's end, if the page is in the index.
    chain: Chain,
    /// When the last sequence released the page, by the pool's clock.
    released: u64,
    /// Whether all keys and values in the page are known to be finite.
    finite: bool,
}

/// Capacity of the [`History`], in entries per page of the pool.
const REMEMBERED: usize = 4;

/// Maximum number of cached pages, filled in part, after the same prefix: each of them is compared with a new prompt.
const MOST_PARTS: usize = 16;

/// Pages of the key-value cache.
pub(super) struct PagePool {
    pages: Vec<Page>,
    free: Vec<u32>,
    /// Full pages by key, with the prefix that ends with the page.
    index: HashMap<Key, (u32, Prefix)>,
    /// Cached pages that are filled in part, by the prefix before them.
    parts: HashMap<Prefix, Vec<u32>>,
    /// Cached pages by the time of their release. The pages of a sequence are released from the last to the first, so
    /// that a page is older here than the pages before it, and is evicted before them.
    cached: BTreeMap<u64, u32>,
    /// Pages that nothing uses and that must be cleared before they are free.
    unclean: Vec<u32>,
    history: History,
    clock: u64,
    prefixes: u64,
}

impl PagePool {
    /// A pool of `pages` free pages, whose contents are finite.
    pub fn new(pages: u32) -> PagePool {
        PagePool {
            pages: (0..pages).map(|_| Page::default()).collect(),
            free: (0..pages).rev().collect(),
            index: HashMap::new(),
            parts: HashMap::new(),
            cached: BTreeMap::new(),
            unclean: Vec::new(),
            history: History::new(REMEMBERED * pages as usize),
            clock: 0,
            prefixes: 0,
        }
    }

    /// Numbers of pages by their state. Pages that must be cleared count as used.
    pub fn counts(&self) -> PageCounts {
        let (free, cached) = (self.free.len() as u32, self.cached.len() as u32);
        PageCounts { free, cached, used: self.pages.len() as u32 - free - cached }
    }

    /// Number of pages that can be allocated.
    pub fn available(&self) -> u32 {
        (self.free.len() + self.cached.len()) as u32
    }

    /// Takes a page for one sequence: a free one, else the cached page that was released first.
    pub fn allocate(&mut self) -> Option<u32> {
        let page = match self.free.pop() {
            Some(page) => page,
            None => {
                let (_, page) = self.cached.pop_first()?;
                if self.remove_from_index(page) {
                    self.history.add(self.pages[page as usize].chain, Miss::Evicted);
                }
                page
            }
        };
        self.pages[page as usize] = Page { references: 1, ..Page::default() };
        Some(page)
    }

    /// Finds the page that has `tokens` after the prefix `before`, and takes it for a further sequence. Returns the page
    /// and the prefix that ends with it.
    pub fn share(&mut self, before: Prefix, tokens: &[u32]) -> Option<(u32, Prefix)> {
        let &(page, prefix) = self.index.get(&(before, tokens.into()))?;
        let entry = &mut self.pages[page as usize];
        if entry.references == 0 {
            self.cached.remove(&entry.released);
        }
        entry.references += 1;
        Some((page, prefix))
    }

    /// Adds a full page that is in use to the index. Returns the prefix that ends with the page. If another page has this
    /// prefix, it stays in the index, and `page` is not added.
    pub fn publish(&mut self, page: u32, before: Prefix, chain: Chain, tokens: &[u32]) -> Prefix {
        debug_assert_eq!(tokens.len(), PAGE as usize);
        let key: Key = (before, tokens.into());
        if let Some(&(_, prefix)) = self.index.get(&key) {
            return prefix;
        }
        self.prefixes += 1;
        let prefix = Prefix(self.prefixes);
        self.pages[page as usize].key = Some(key.clone());
        self.pages[page as usize].chain = chain;
        self.index.insert(key, (page, prefix));
        prefix
    }

    /// Finds the page, filled in part, that begins with most of `tokens` after the prefix `before`, and takes it for a sequence.
    /// Returns the page and the number of these tokens, which is at least one. While pages are free, a page is left to others of
    /// whose tokens more than half are different.
    pub fn take_part(&mut self, before: Prefix, tokens: &[u32]) -> Option<(u32, u32)> {
        let common =
            |page: &u32| self.part(*page).iter().zip(tokens).take_while(|(own, token)| own == token).count();
        let pages = self.parts.get(&before)?;
        let (page, count) = pages.iter().map(|page| (*page, common(page))).max_by_key(|&(_, count)| count)?;
        if count == 0 || 2 * count < self.part(page).len() && !self.free.is_empty() {
            return None;
        }
        self.uncache(page);
        self.pages[page as usize] = Page { references: 1, ..Page::default() };
        Some((page, count as u32))
    }

    /// Ends a sequence's use of a page that its prompt has filled in part, with `part` after the prefix `before`; see
    /// [`PagePool::release`] for `finite`. The page is cached unless another one begins with the same tokens. Of a prefix,
    /// [`MOST_PARTS`] such pages are cached.
    pub fn release_part(&mut self, page: u32, finite: bool, before: Prefix, part: &[u32]) {
        let others = self.parts.get(&before).map_or(&[][..], |pages| pages);
        if finite && !others.iter().any(|&other| self.part(other).starts_with(part)) {
            let is_shorter = |&other: &u32| part.starts_with(self.part(other));
            let oldest = others.first().copied().filter(|_| others.len() == MOST_PARTS);
            let superfluous: Vec<u32> = others.iter().copied().filter(is_shorter).chain(oldest).collect();
            for other in superfluous {
                if self.pages[other as usize].key.is_some() {
                    self.uncache(other);
                    self.free.push(other);
                }
            }
            self.pages[page as usize].key = Some((before, part.into()));
            self.parts.entry(before).or_default().push(page);
        }
        self.release(page, finite);
    }

    /// Tokens of a page that is filled in part.
    fn part(&self, page: u32) -> &[u32] {
        self.pages[page as usize].key.as_ref().map_or(&[], |(_, part)| part)
    }

    /// Removes a cached page from the cache.
    fn uncache(&mut self, page: u32) {
        self.cached.remove(&self.pages[page as usize].released);
        self.remove_from_index(page);
    }

    /// Ends a sequence's use of a page. `finite` tells that all keys and values that the sequence wrote or read there are
    /// known to be finite. A page that nothing uses any more is cached if it is in the index and finite, else it becomes
    /// free, once it is cleared if it may hold values that are not finite.
    pub fn release(&mut self, page: u32, finite: bool) {
        let entry = &mut self.pages[page as usize];
        entry.finite |= finite;
        entry.references -= 1;
        if entry.references > 0 {
            return;
        }
        if !entry.finite {
            self.remove_from_index(page);
            self.unclean.push(page);
        } else if entry.key.is_some() {
            entry.released = self.clock;
            self.cached.insert(self.clock, page);
            self.clock += 1;
        } else {
            self.free.push(page);
        }
    }

    /// Why the page that ends a chain is not in the index.
    pub fn miss(&self, chain: Chain) -> Miss {
        self.history.of(chain)
    }

    /// Remembers why a page is not in the index.
    pub fn remember(&mut self, chain: Chain, reason: Miss) {
        self.history.add(chain, reason);
    }

    /// Takes the pages that must be cleared. [`PagePool::cleared`] gives them back.
    pub fn take_unclean(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.unclean)
    }

    /// Gives back pages that were cleared.
    pub fn cleared(&mut self, pages: Vec<u32>) {
        self.free.extend(pages);
    }

    /// Number of sequences that use a page.
    #[cfg(test)]
    pub fn references(&self, page: u32) -> u32 {
        self.pages[page as usize].references
    }

    /// Removes a page from the index, or from the pages that are filled in part. Returns whether it was in the index.
    fn remove_from_index(&mut self, page: u32) -> bool {
        let Some(key) = self.pages[page as usize].key.take() else { return false };
        if let Some(pages) = self.parts.get_mut(&key.0) {
            pages.retain(|&other| other != page);
            if pages.is_empty() {
                self.parts.remove(&key.0);
            }
        }
        self.index.remove(&key).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(first: u32) -> Vec<u32> {
        (first..first + PAGE).collect()
    }

    /// Publishes pages with the tokens of `firsts`, one after another.
    fn chain(pool: &mut PagePool, firsts: &[u32]) -> Vec<u32> {
        let mut before = Prefix::EMPTY;
        let publish = |&first: &u32| {
            let page = pool.allocate().unwrap();
            before = pool.publish(page, before, Chain::default(), &tokens(first));
            page
        };
        firsts.iter().map(publish).collect()
    }

    fn counts(free: u32, cached: u32, used: u32) -> PageCounts {
        PageCounts { free, cached, used }
    }

    #[test]
    fn a_page_is_found_after_its_prefix_only() {
        let mut pool = PagePool::new(4);
        let pages = chain(&mut pool, &[0, 100]);
        let (page, first) = pool.share(Prefix::EMPTY, &tokens(0)).unwrap();
        assert_eq!(page, pages[0]);
        assert!(pool.share(Prefix::EMPTY, &tokens(100)).is_none());
        assert_eq!(pool.share(first, &tokens(100)).unwrap().0, pages[1]);
        // A second page with the same tokens is not in the index, and what follows it is.
        let copy = pool.allocate().unwrap();
        assert_eq!(pool.publish(copy, Prefix::EMPTY, Chain::default(), &tokens(0)), first);
        pool.release(copy, true);
        assert_eq!(pool.counts(), counts(2, 0, 2));
    }

    #[test]
    fn the_pages_released_first_are_evicted_first_and_prefixes_last() {
        let mut pool = PagePool::new(4);
        let old = chain(&mut pool, &[0, 100]);
        let new = chain(&mut pool, &[200, 300]);
        for page in old.iter().rev().chain(new.iter().rev()) {
            pool.release(*page, true);
        }
        assert_eq!(pool.counts(), counts(0, 4, 0));
        // Used again, the old pages are the newer ones.
        let (page, prefix) = pool.share(Prefix::EMPTY, &tokens(0)).unwrap();
        pool.share(prefix, &tokens(100)).unwrap();
        assert_eq!(page, old[0]);
        [old[1], old[0]].iter().for_each(|&page| pool.release(page, true));
        let evicted: Vec<u32> = (0..4).map(|_| pool.allocate().unwrap()).collect();
        assert_eq!(evicted, [new[1], new[0], old[1], old[0]]);
        assert_eq!((pool.allocate(), pool.available()), (None, 0));
        assert!(pool.share(Prefix::EMPTY, &tokens(0)).is_none());
    }

    #[test]
    fn a_page_that_may_not_be_finite_is_cleared_before_it_is_free() {
        let mut pool = PagePool::new(2);
        let pages = chain(&mut pool, &[0, 100]);
        // The page is finite if one of the sequences that use it says so.
        pool.share(Prefix::EMPTY, &tokens(0)).unwrap();
        pool.release(pages[0], true);
        pool.release(pages[0], false);
        pool.release(pages[1], false);
        assert_eq!(pool.counts(), counts(0, 1, 1));
        assert_eq!(pool.take_unclean(), [pages[1]]);
        pool.cleared(vec![pages[1]]);
        assert_eq!(pool.counts(), counts(1, 1, 0));
        let (_, prefix) = pool.share(Prefix::EMPTY, &tokens(0)).unwrap();
        assert!(pool.share(prefix, &tokens(100)).is_none());
    }

    #[test]
    fn of_pages_filled_in_part_the_longest_is_kept_and_the_best_is_taken() {
        let mut pool = PagePool::new(4);
        let long = tokens(0)[..20].to_vec();
        let other = [&long[..9], &[70, 71]].concat();
        for part in [&long[..10], &long[..], &long[..15], &other[..]] {
            let page = pool.allocate().unwrap();
            pool.release_part(page, true, Prefix::EMPTY, part);
        }
        assert_eq!(pool.counts(), counts(2, 2, 0));
        // Those that may not be finite are not kept.
        let page = pool.allocate().unwrap();
        pool.release_part(page, false, Prefix::EMPTY, &tokens(90)[..5]);
        assert_eq!(pool.take_unclean(), [page]);
        pool.cleared(vec![page]);
        let take = |pool: &mut PagePool, tokens: &[u32]| pool.take_part(Prefix::EMPTY, tokens).map(|it| it.1);
        assert_eq!(take(&mut pool, &tokens(90)), None);
        assert_eq!(take(&mut pool, &tokens(0)), Some(20));
        assert_eq!(take(&mut pool, &tokens(0)), Some(9));
        assert_eq!(take(&mut pool, &tokens(0)), None);
        assert_eq!(pool.counts(), counts(2, 0, 2));
        // Of many the first ones are not kept.
        let mut large = PagePool::new(40);
        for first in 0..20 {
            let page = large.allocate().unwrap();
            large.release_part(page, true, Prefix::EMPTY, &tokens(first)[..5]);
        }
        assert_eq!(large.counts(), counts(24, 16, 0));
        assert_eq!((take(&mut large, &tokens(3)), take(&mut large, &tokens(4))), (None, Some(5)));
        // One that is evicted is not found.
        pool.release_part(0, true, Prefix::EMPTY, &long);
        let pages = (0..3).map(|_| pool.allocate().unwrap());
        assert_eq!(pages.count(), 3);
        assert_eq!(take(&mut pool, &tokens(0)), None);
    }
}
