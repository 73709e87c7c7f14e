//! Amounts agree with the API machinery's quantities, which are Kubernetes' own.

use conductor_claims::amount::Amount;
use conductor_machinery::quantity::Quantity;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_same_texts_read_and_order_the_same(
        a in "[+-]?[0-9]{0,6}(\\.[0-9]{0,4})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e[0-9]|E-?[0-9]|x)?",
        b in "[0-9]{1,6}(\\.[0-9]{1,4})?(m|k|M|G|Ki|Mi|Gi)?",
    ) {
        let (mine, theirs) = (Amount::parse(&a), a.parse::<Quantity>());
        prop_assert_eq!(mine.is_ok(), theirs.is_ok(), "{:?} {:?}", mine, theirs);
        if let (Ok(mine), Ok(theirs), Ok(mine_b), Ok(theirs_b)) = (mine, theirs, Amount::parse(&b), b.parse::<Quantity>()) {
            prop_assert_eq!(mine.cmp(&mine_b), theirs.cmp(&theirs_b));
        }
    }
}
