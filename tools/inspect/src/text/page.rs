//! The page of `bespoke inspect --html`: one file with data, style and scripts, without network access.

use crate::Inspection;

/// Template of the page; `{{NAME}}` is replaced by the text of a part.
const PAGE: &str = include_str!("../page/page.html");

/// Names and texts of the page's parts, in the order in which the browser reads them.
const PARTS: [(&str, &str); 9] = [
    ("style", include_str!("../page/style.css")),
    ("format", include_str!("../page/format.js")),
    ("highlight", include_str!("../page/highlight.js")),
    ("pane", include_str!("../page/pane.js")),
    ("graph", include_str!("../page/graph.js")),
    ("warps", include_str!("../page/warps.js")),
    ("statistics", include_str!("../page/statistics.js")),
    ("kernel", include_str!("../page/kernel.js")),
    ("main", include_str!("../page/main.js")),
];

/// The page of an inspection.
pub fn page(inspection: &Inspection) -> serde_json::Result<String> {
    let title = format!("{} for {}", inspection.model, inspection.target);
    let mut text = PAGE.replace("{{title}}", &escape(&title));
    for (name, part) in PARTS {
        text = text.replace(&format!("{{{{{name}}}}}"), part);
    }
    // The data is inserted last, so that nothing in the data is replaced. `<` is escaped because `</script>` would end
    // the data's element.
    let data = serde_json::to_string(inspection)?.replace('<', "\\u003c");
    Ok(text.replacen("{{data}}", &data, 1))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use bespoke_codegen::ptx::Target;
    use bespoke_kernels::plan::{Plan, PlanParams, Tuning};
    use bespoke_kernels::shape::builtin;

    use super::*;
    use crate::Tools;

    #[test]
    fn the_page_is_one_file() {
        let shape = builtin().remove(0).with_mix("q4_k_m").unwrap();
        let plan = Plan::new(&shape, Target::Sm90, PlanParams::single(64)).unwrap();
        let inspection = Inspection::of(&plan, &Tuning::default(), &Tools::default(), &|_, _| ()).unwrap();
        let text = page(&inspection).unwrap();
        let (before, rest) = text.split_once("<script id=\"data\" type=\"application/json\">").unwrap();
        let (data, after) = rest.split_once("</script>").unwrap();
        let page = format!("{before}{after}").replace("url(#", "");
        for part in ["{{", "<link rel=\"stylesheet", " src=", "@import", "url(", "fetch(", "https://"] {
            assert!(!page.contains(part), "{part}");
        }
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["kernels"].as_array().unwrap().len(), plan.kernels.len());
        assert_eq!(data["kernels"][0]["ptx"]["text"], inspection.kernels[0].ptx.text);
    }
}
