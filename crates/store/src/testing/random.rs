//! Repeatable randomness.

/// A small generator (SplitMix64): the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound.max(1)
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
