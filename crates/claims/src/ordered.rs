//! An ordered set over several dimensions that finds its first element at or above a bound in every dimension.
//!
//! A treap whose nodes also know the largest value of each dimension below them. `first` goes from the smallest upwards and skips
//! every subtree that cannot hold an answer: O(log n) for one and two dimensions, and close to it for more.
//!
//! Invariant: in-order traversal is sorted by the leading `sorted` dimensions, then by the caller's order of items; `peaks` of a node
//! bounds every key in its subtree. Priorities are a hash of a counter, so the shape is the same in every run.

use std::cmp::Ordering;

const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    left: u32,
    right: u32,
    size: u32,
    priority: u32,
    item: u32,
}

/// What to do with a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// This is it.
    Take,
    /// Go on.
    Skip,
    /// Nothing further can be it.
    Stop,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Ordered {
    dimensions: usize,
    sorted: usize,
    nodes: Vec<Node>,
    /// Of every node its key, then its peaks: a search reads both, and memory is what it waits for.
    values: Vec<i128>,
    vacant: Vec<u32>,
    root: u32,
    seed: u64,
}

impl Ordered {
    pub(crate) fn new(dimensions: usize, sorted: usize) -> Ordered {
        Ordered {
            dimensions,
            sorted: sorted.min(dimensions),
            nodes: Vec::new(),
            values: Vec::new(),
            vacant: Vec::new(),
            root: NIL,
            seed: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.size(self.root) as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.root == NIL
    }

    fn size(&self, at: u32) -> u32 {
        if at == NIL { 0 } else { self.nodes[at as usize].size }
    }

    fn key(&self, at: u32) -> &[i128] {
        self.values(at).0
    }

    /// The key and the peaks of a node.
    fn values(&self, at: u32) -> (&[i128], &[i128]) {
        let start = at as usize * self.dimensions * 2;
        self.values[start..start + self.dimensions * 2].split_at(self.dimensions)
    }

    fn compare(&self, at: u32, key: &[i128], item: u32, tie: &impl Fn(u32, u32) -> Ordering) -> Ordering {
        self.key(at)[..self.sorted].cmp(&key[..self.sorted]).then_with(|| tie(self.nodes[at as usize].item, item))
    }

    fn refresh(&mut self, at: u32) {
        let node = self.nodes[at as usize];
        self.nodes[at as usize].size = 1 + self.size(node.left) + self.size(node.right);
        let d = self.dimensions;
        for k in 0..d {
            let mut peak = self.key(at)[k];
            for child in [node.left, node.right] {
                if child != NIL {
                    peak = peak.max(self.values(child).1[k]);
                }
            }
            self.values[at as usize * d * 2 + d + k] = peak;
        }
    }

    pub(crate) fn insert(&mut self, key: &[i128], item: u32, tie: &impl Fn(u32, u32) -> Ordering) {
        debug_assert_eq!(key.len(), self.dimensions);
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut hash = self.seed;
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let node = Node { left: NIL, right: NIL, size: 1, priority: (hash >> 32) as u32, item };
        let at = match self.vacant.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                let (d, start) = (self.dimensions, at as usize * self.dimensions * 2);
                self.values[start..start + d].copy_from_slice(key);
                self.values[start + d..start + d * 2].copy_from_slice(key);
                at
            }
            None => {
                self.nodes.push(node);
                self.values.extend_from_slice(key);
                self.values.extend_from_slice(key);
                (self.nodes.len() - 1) as u32
            }
        };
        self.root = self.insert_at(self.root, at, tie);
    }

    fn insert_at(&mut self, tree: u32, new: u32, tie: &impl Fn(u32, u32) -> Ordering) -> u32 {
        if tree == NIL {
            return new;
        }
        let item = self.nodes[new as usize].item;
        if self.nodes[new as usize].priority > self.nodes[tree as usize].priority {
            let key = self.key(new).to_vec();
            let (left, right) = self.split(tree, &key, item, tie);
            self.nodes[new as usize].left = left;
            self.nodes[new as usize].right = right;
            self.refresh(new);
            return new;
        }
        if self.compare(tree, self.key(new), item, tie).is_lt() {
            let right = self.insert_at(self.nodes[tree as usize].right, new, tie);
            self.nodes[tree as usize].right = right;
        } else {
            let left = self.insert_at(self.nodes[tree as usize].left, new, tie);
            self.nodes[tree as usize].left = left;
        }
        self.refresh(tree);
        tree
    }

    fn split(&mut self, tree: u32, key: &[i128], item: u32, tie: &impl Fn(u32, u32) -> Ordering) -> (u32, u32) {
        if tree == NIL {
            return (NIL, NIL);
        }
        if self.compare(tree, key, item, tie).is_lt() {
            let (left, right) = self.split(self.nodes[tree as usize].right, key, item, tie);
            self.nodes[tree as usize].right = left;
            self.refresh(tree);
            (tree, right)
        } else {
            let (left, right) = self.split(self.nodes[tree as usize].left, key, item, tie);
            self.nodes[tree as usize].left = right;
            self.refresh(tree);
            (left, tree)
        }
    }

    fn merge(&mut self, left: u32, right: u32) -> u32 {
        if left == NIL {
            return right;
        }
        if right == NIL {
            return left;
        }
        if self.nodes[left as usize].priority > self.nodes[right as usize].priority {
            let merged = self.merge(self.nodes[left as usize].right, right);
            self.nodes[left as usize].right = merged;
            self.refresh(left);
            left
        } else {
            let merged = self.merge(left, self.nodes[right as usize].left);
            self.nodes[right as usize].left = merged;
            self.refresh(right);
            right
        }
    }

    /// Takes an element out; its key must be the one it was inserted with.
    pub(crate) fn remove(&mut self, key: &[i128], item: u32, tie: &impl Fn(u32, u32) -> Ordering) -> bool {
        let mut removed = false;
        self.root = self.remove_at(self.root, key, item, tie, &mut removed);
        removed
    }

    fn remove_at(
        &mut self,
        tree: u32,
        key: &[i128],
        item: u32,
        tie: &impl Fn(u32, u32) -> Ordering,
        removed: &mut bool,
    ) -> u32 {
        if tree == NIL {
            return NIL;
        }
        let node = self.nodes[tree as usize];
        match self.compare(tree, key, item, tie) {
            Ordering::Equal => {
                *removed = true;
                self.vacant.push(tree);
                return self.merge(node.left, node.right);
            }
            Ordering::Less => {
                let right = self.remove_at(node.right, key, item, tie, removed);
                self.nodes[tree as usize].right = right;
            }
            Ordering::Greater => {
                let left = self.remove_at(node.left, key, item, tie, removed);
                self.nodes[tree as usize].left = left;
            }
        }
        self.refresh(tree);
        tree
    }

    /// Visits, in order, the elements at or above `lower` in every dimension, until one is taken or the visitor stops.
    pub(crate) fn first(&self, lower: &[i128], mut visit: impl FnMut(u32, &[i128]) -> Visit) -> Option<u32> {
        match self.search(self.root, lower, &mut visit) {
            Some((Visit::Take, item)) => Some(item),
            _ => None,
        }
    }

    fn search(&self, tree: u32, lower: &[i128], visit: &mut impl FnMut(u32, &[i128]) -> Visit) -> Option<(Visit, u32)> {
        if tree == NIL {
            return None;
        }
        let (key, peaks) = self.values(tree);
        if peaks.iter().zip(lower).any(|(peak, bound)| peak < bound) {
            return None;
        }
        let node = self.nodes[tree as usize];
        // what is before one that is too small in what they are sorted by first is too small as well
        if self.sorted > 0 && key[0] < lower[0] {
            return self.search(node.right, lower, visit);
        }
        if let found @ Some(_) = self.search(node.left, lower, visit) {
            return found;
        }
        if key.iter().zip(lower).all(|(value, bound)| value >= bound) {
            let verdict = visit(node.item, key);
            if verdict != Visit::Skip {
                return Some((verdict, node.item));
            }
        }
        self.search(node.right, lower, visit)
    }

    /// How many elements lie below `bound` in the first dimension, and the largest of those values.
    pub(crate) fn below(&self, bound: i128) -> (usize, Option<i128>) {
        let (mut at, mut count, mut largest) = (self.root, 0usize, None);
        while at != NIL {
            let node = self.nodes[at as usize];
            let value = self.key(at)[0];
            if value < bound {
                count += 1 + self.size(node.left) as usize;
                largest = Some(value);
                at = node.right;
            } else {
                at = node.left;
            }
        }
        (count, largest)
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
            + self.values.capacity() * size_of::<i128>()
            + self.vacant.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn first_is_what_a_sorted_list_says(
            entries in prop::collection::vec((0i128..8, 0i128..8), 0..60),
            gone in prop::collection::vec(any::<bool>(), 60),
            lower in (0i128..9, 0i128..9),
        ) {
            let mut set = Ordered::new(2, 2);
            let tie = |a: u32, b: u32| a.cmp(&b);
            for (item, (x, y)) in entries.iter().enumerate() {
                set.insert(&[*x, *y], item as u32, &tie);
            }
            let mut left = Vec::new();
            for (item, (x, y)) in entries.iter().enumerate() {
                if gone[item] {
                    prop_assert!(set.remove(&[*x, *y], item as u32, &tie));
                } else {
                    left.push((*x, *y, item as u32));
                }
            }
            left.sort();
            prop_assert_eq!(set.len(), left.len());
            let expected = left.iter().find(|(x, y, _)| *x >= lower.0 && *y >= lower.1).map(|e| e.2);
            prop_assert_eq!(set.first(&[lower.0, lower.1], |_, _| Visit::Take), expected);
            let below: Vec<_> = left.iter().filter(|e| e.0 < lower.0).collect();
            prop_assert_eq!(set.below(lower.0), (below.len(), below.last().map(|e| e.0)));
        }
    }
}
