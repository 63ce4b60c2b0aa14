//! Which nodes `chronos site add` and `remove` tell what, from what the nodes of this site say of
//! the other sites. Pure: asks no node and changes nothing.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::survey::NodeReport;

/// The addresses of other sites, by name. The addresses of each are sorted.
pub(super) type Sites = BTreeMap<String, Vec<String>>;

/// What the operator has ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SiteOrder {
    /// The site at these addresses is to hold all timers.
    Add(String, Vec<String>),
    /// The site is to hold none of what comes.
    Remove(String),
}

/// What a node says of the sites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeSites {
    pub node: String,
    /// Its own site.
    pub local: String,
    pub sites: Sites,
    /// Why no order can change the sites of this node; `None` if one can.
    pub fixed: Option<String>,
}

/// What a node is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Telling {
    pub node: String,
    pub held: Sites,
    pub wanted: Sites,
}

impl NodeSites {
    pub(super) fn of(report: &NodeReport) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let sites = report.document["sites"].as_array().into_iter().flatten();
        let addresses = |site: &Value| {
            let address = text(&site["address"]);
            sorted(address.split(',').map(str::to_owned).collect())
        };
        Self {
            node: report.name.clone(),
            local: text(&report.document["site"]),
            sites: sites.map(|site| (text(&site["name"]), addresses(site))).collect(),
            fixed: report.document["sites_fixed"].as_str().map(str::to_owned),
        }
    }
}

impl SiteOrder {
    /// The site that is added or removed.
    pub(super) fn site(&self) -> &str {
        let (SiteOrder::Add(name, _) | SiteOrder::Remove(name)) = self;
        name
    }

    /// Returns what each node is to be told that is not where the order wants it, in the order in
    /// which all operators tell them. An error means that nothing may be done. Its text says why,
    /// and what to do.
    pub(super) fn plan(&self, nodes: &[NodeSites]) -> Result<Vec<Telling>, String> {
        let name = self.site();
        if let Some(own) = nodes.iter().find(|node| node.local == name) {
            return Err(format!(
                "{name} is the site of {} itself ([sites] local): name the other site, or give \
                 --admin of a node of the site that is to know it",
                own.node
            ));
        }
        self.refuse_disagreement(nodes)?;
        let mut tellings = Vec::new();
        for node in nodes {
            let mut wanted = node.sites.clone();
            wanted.remove(name);
            if let SiteOrder::Add(_, addresses) = self {
                self.refuse_taken(node, &sorted(addresses.clone()), nodes)?;
                wanted.insert(name.to_owned(), sorted(addresses.clone()));
            }
            if wanted != node.sites {
                let (node, held) = (node.node.clone(), node.sites.clone());
                tellings.push(Telling { node, held, wanted });
            }
        }
        let fixed = nodes.iter().filter(|node| tellings.iter().any(|it| it.node == node.node));
        match fixed.filter_map(|node| Some((&node.node, node.fixed.as_ref()?))).next() {
            Some((node, why)) => Err(format!("{node}: {why}. No node was told anything")),
            None => Ok(tellings),
        }
    }

    /// Returns an error if nodes disagree about anything but the site of this order: that was not
    /// brought about by this order, interrupted.
    fn refuse_disagreement(&self, nodes: &[NodeSites]) -> Result<(), String> {
        let others = |node: &NodeSites| {
            let mut sites = node.sites.clone();
            sites.remove(self.site());
            (node.local.clone(), sites)
        };
        let Some(first) = nodes.first() else { return Ok(()) };
        let Some(other) = nodes.iter().find(|node| others(node) != others(first)) else {
            return Ok(());
        };
        Err(format!(
            "members disagree about sites: {} is of {} and has {}; {} is of {} and has {}. Finish \
             the order that was interrupted (chronos site add or remove), or make [sites] the same \
             on all by hand (SIGHUP reads it), then run this again",
            first.node,
            first.local,
            told(&first.sites),
            other.node,
            other.local,
            told(&other.sites)
        ))
    }

    /// Returns an error if a node knows the name or one of the addresses as something else.
    fn refuse_taken(
        &self,
        node: &NodeSites,
        addresses: &[String],
        nodes: &[NodeSites],
    ) -> Result<(), String> {
        let name = self.site();
        if let Some(known) = node.sites.get(name).filter(|known| *known != addresses) {
            return Err(format!(
                "{} knows {name} at other addresses already: {}. Give these, or take that site out \
                 first: chronos site remove {name}",
                node.node,
                known.join(" ")
            ));
        }
        let is_taken = |address: &&String| {
            nodes.iter().any(|node| node.node == **address)
                || node.sites.iter().any(|(site, at)| site != name && at.contains(address))
        };
        match addresses.iter().find(is_taken) {
            Some(address) => Err(format!(
                "{address} is a node of this site, or of another one that {} knows: name the \
                 addresses of nodes of {name}",
                node.node
            )),
            None => Ok(()),
        }
    }
}

/// Sites as an order to a node names them.
pub(super) fn document(sites: &Sites) -> Value {
    let all = sites.iter();
    all.map(|(name, addresses)| json!({ "name": name, "addresses": addresses })).collect()
}

fn told(sites: &Sites) -> String {
    if sites.is_empty() {
        return "none".into();
    }
    let one =
        |(name, addresses): (&String, &Vec<String>)| format!("{name}={}", addresses.join(","));
    sites.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn sorted(mut addresses: Vec<String>) -> Vec<String> {
    addresses.sort();
    addresses.dedup();
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a node from `a: y=b:1,b:2 z=c:1`. Its site is `x`.
    fn node(text: &str) -> NodeSites {
        let (node, sites) = text.split_once(": ").expect("a name");
        let site = |item: &str| {
            let (name, addresses) = item.split_once('=').expect("an address");
            (name.to_owned(), addresses.split(',').map(str::to_owned).collect())
        };
        let sites = sites.split_whitespace().map(site).collect();
        NodeSites { node: node.into(), local: "x".into(), sites, fixed: None }
    }

    fn nodes(texts: &[&str]) -> Vec<NodeSites> {
        texts.iter().map(|text| node(text)).collect()
    }

    fn add(name: &str, addresses: &[&str]) -> SiteOrder {
        SiteOrder::Add(name.into(), addresses.iter().map(|&at| at.to_owned()).collect())
    }

    fn tells(order: &SiteOrder, texts: &[&str]) -> String {
        let plan = order.plan(&nodes(texts)).expect("fine");
        plan.iter().map(|it| format!("{}: {}; ", it.node, told(&it.wanted))).collect()
    }

    #[test]
    fn nodes_are_told_until_all_have_it() {
        let order = add("z", &["c:2", "c:1"]);
        let (without, with) = ("y=b:1", "y=b:1 z=c:1,c:2");
        let of =
            |one: &str, two: &str| tells(&order, &[&format!("a: {one}"), &format!("b: {two}")]);
        assert_eq!(of(without, without), format!("a: {with}; b: {with}; "));
        assert_eq!(of(with, without), format!("b: {with}; "), "it was interrupted");
        assert_eq!(of(with, with), "");
        let back = SiteOrder::Remove("z".into());
        let texts = [format!("a: {with}"), format!("b: {without}")];
        assert_eq!(tells(&back, &[&texts[0], &texts[1]]), format!("a: {without}; "));
        assert_eq!(tells(&SiteOrder::Remove("y".into()), &["a: y=b:1"]), "a: none; ");
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let refused = |order: SiteOrder, texts: &[&str]| {
            order.plan(&nodes(texts)).expect_err("it is refused")
        };
        let own = refused(add("x", &["c:1"]), &["a: "]);
        assert!(own.starts_with("x is the site of a itself"), "{own}");
        let other = refused(add("y", &["c:1"]), &["a: y=b:1"]);
        assert!(other.contains("a knows y at other addresses already: b:1"), "{other}");
        let taken = refused(add("z", &["b:1"]), &["a: y=b:1"]);
        assert!(taken.starts_with("b:1 is a node of this site, or of another"), "{taken}");
        let member = refused(add("z", &["a2"]), &["a: ", "a2: "]);
        assert!(member.starts_with("a2 is a node of this site"), "{member}");
        let apart = refused(add("z", &["c:1"]), &["a: y=b:1", "a2: y=b:2"]);
        assert!(apart.contains("a is of x and has y=b:1; a2 is of x and has y=b:2"), "{apart}");
        let mut fixed = node("a: ");
        fixed.fixed = Some("a variable".into());
        let told = add("z", &["c:1"]).plan(&[fixed]).expect_err("it cannot be written");
        assert_eq!(told, "a: a variable. No node was told anything");
    }
}
