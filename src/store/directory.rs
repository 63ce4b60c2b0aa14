//! A list that grows without moving its elements: leaves of 512 elements under a short root. Every
//! structure of this room keeps its chunks in such a list. A plain `Vec` of chunks copies all of
//! them when it doubles. With 20 000 chunks of payload, and the chunks of slab and links doubling
//! at the same insert, the copies took 1.5 ms at 8 388 608 timers.

// May panic: indices 4.
// Why it does not: listed 4.

const LEAF_LOG2: u32 = 9;
const LEAF: usize = 1 << LEAF_LOG2;

/// Elements numbered 0, 1, 2 ..., which are added at the end only.
pub(crate) struct Directory<T> {
    leaves: Vec<Vec<T>>,
    /// Bytes of the root and of all leaves, as reserved.
    bytes: usize,
}

impl<T> Directory<T> {
    pub(crate) const fn new() -> Self {
        Self { leaves: Vec::new(), bytes: 0 }
    }

    /// Adds an element at the end. Moves fewer than 512 other elements.
    pub(crate) fn push(&mut self, element: T) {
        match self.leaves.last_mut() {
            Some(leaf) if leaf.len() < LEAF => leaf.push(element),
            Some(_) => {
                let mut leaf = Vec::with_capacity(LEAF);
                leaf.push(element);
                self.leaves.push(leaf);
            }
            None => self.leaves.push(vec![element]),
        }
        let elements: usize = self.leaves.iter().map(Vec::capacity).sum();
        self.bytes = self.leaves.capacity() * size_of::<Vec<T>>() + elements * size_of::<T>();
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.leaves.get(at >> LEAF_LOG2)?.get(at % LEAF)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.leaves.get_mut(at >> LEAF_LOG2)?.get_mut(at % LEAF)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self.leaves.last() {
            Some(last) => (self.leaves.len() - 1) * LEAF + last.len(),
            None => 0,
        }
    }

    /// Bytes of memory, without memory that the elements own.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<T> std::ops::Index<usize> for Directory<T> {
    type Output = T;
    #[inline]
    fn index(&self, at: usize) -> &T {
        &self.leaves[at >> LEAF_LOG2][at % LEAF]
    }
}

impl<T> std::ops::IndexMut<usize> for Directory<T> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.leaves[at >> LEAF_LOG2][at % LEAF]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_by_a_leaf_and_keeps_its_elements() {
        let mut directory = Directory::new();
        for number in 0..10 * LEAF {
            let before = directory.bytes();
            directory.push(number);
            assert_eq!(directory.len(), number + 1);
            assert!(directory.bytes() - before <= LEAF * size_of::<usize>() + 256);
        }
        assert!((0..10 * LEAF).all(|number| directory[number] == number));
        assert_eq!(directory.get(10 * LEAF), None);
        assert_eq!(directory.get_mut(10 * LEAF - 1), Some(&mut (10 * LEAF - 1)));
    }

    #[test]
    fn bytes_are_the_root_and_every_leaf_as_reserved() {
        let mut directory = Directory::new();
        assert_eq!(directory.bytes(), 0);
        (0..LEAF as u64 + 1).for_each(|number| directory.push(number));
        // A root of four places, the fewest that a vector reserves, and two leaves.
        assert_eq!(directory.bytes(), 4 * 24 + 2 * LEAF * 8);
    }
}
