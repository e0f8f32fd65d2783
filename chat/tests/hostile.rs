//! Templates that take too long, write too much, nest too deep, or are none.

use std::time::Instant;

use bespoke_chat::{Inputs, Message, Template, TemplateError, checked_message};

fn render(source: &str) -> Result<String, TemplateError> {
    Template::parse(source)?.render(&Inputs::new(vec![Message::new("user", "Hello")]))
}

#[test]
fn work_and_memory_are_bounded() {
    let loops = "{% for i in range(99999) %}".repeat(4) + &"{% endfor %}".repeat(4);
    let doubled = "{% set x = 'xxxxxxxxxxxxxxxx' %}".to_owned() + &"{% set x = x ~ x %}".repeat(40);
    let captured =
        "{% set x = 'xxxxxxxxxxxxxxxx' %}".to_owned() + &"{% set x %}{{ x }}{{ x }}{% endset %}".repeat(40);
    let long_text = format!("{{% for i in range(99999) %}}{}{{% endfor %}}", "text ".repeat(20_000));
    let replaced = "{% set x = 'x' * 100000 %}{{ x | replace('x', x) }}";
    for source in [
        loops.as_str(),
        &doubled,
        &captured,
        &long_text,
        replaced,
        "{{ 'x' * 99999999 }}{{ 'x' * 99999999 }}{{ 'x' * 99999999 }}",
        "{% set x = 'x' * 1000000 %}{{ x.replace('x', x) }}",
        "{% set x = 'x' * 1000000 %}{{ x.join(x) }}",
        "{% set ns = namespace(x=[1, 2]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x | length }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(40) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(40) %}{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}{{ ns.x ~ 'a' }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(40) %}{% set ns.x = dict(a=ns.x, b=ns.x) %}{% endfor %}{{ ns.x | string }}",
        "{% set ns = namespace(x=1) %}{% set ns.x = ns %}{{ ns }}",
        "{% set ns = namespace(x=1) %}{% set m = [ns] %}{% set ns.x = m %}{{ ns }}",
        "{% set ns = namespace(x=1) %}{% set ns.x = namespace(x=ns) %}{{ ns }}",
        "{% macro f(x, n) %}{% if n %}{{ f([x, x], n - 1) }}{% else %}{{ x }}{% endif %}{% endmacro %}{{ f(1, 40) }}",
        "{% macro f(x, n) %}{% if n %}{{ f(x * 9, n - 1) }}{% else %}{{ x }}{% endif %}{% endmacro %}{{ f([1], 40) }}",
        "{% set x = 'x' * 1000000 %}{{ ('{0}' * 300000).format(x) }}",
        "{{ '{:>99999999}'.format(1) }}",
        "{{ [1] | batch(99999999, 'x') | list }}",
        "{% set x = ['x' * 1000000] * 99999 %}{{ x | join }}",
        "{{ 'x' | indent(99999999) }}",
        "{{ '%99999999d' | format(1) }}",
        "{{ '%99999999d' % 1 }}",
        "{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    ] {
        let start = Instant::now();
        let error = render(source).unwrap_err();
        assert!(
            matches!(error, TemplateError::OutOfFuel { line: 1 } | TemplateError::Failed { .. }),
            "{source:.60}: {error}"
        );
        assert!(start.elapsed().as_secs() < 20, "{source:.60}: {:?}", start.elapsed());
    }
}

#[test]
fn messages_with_many_keys_take_linear_time() {
    let keys: Vec<String> = (0..400_000).map(|key| format!(r#""{key}":0"#)).collect();
    let text = format!(r#"{{"role":"developer","reasoning":"r","content":[],{}}}"#, keys.join(","));
    let message: Message = serde_json::from_str(&text).unwrap();
    let start = Instant::now();
    let message = checked_message(0, message).unwrap();
    let template = Template::parse("{{ messages[0].thinking }}{{ messages[0] | length }}").unwrap();
    assert_eq!(template.render(&Inputs::new(vec![message])).unwrap(), "r400005");
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn depth_is_bounded() {
    let cases = [
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".to_owned(),
        format!("{{{{ {}1{} }}}}", "(".repeat(10_000), ")".repeat(10_000)),
        format!("{{{{ {}1{} }}}}", "[".repeat(10_000), "]".repeat(10_000)),
        format!("{{{{ {}1 }}}}", "not ".repeat(10_000)),
        format!("{{{{ {}1 }}}}", "-".repeat(10_000)),
        "{% if true %}".repeat(10_000) + &"{% endif %}".repeat(10_000),
        "{% for x in 'a' recursive %}{{ loop('a') }}{% endfor %}".to_owned(),
        "{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}"
            .to_owned(),
        "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% for i in range(9) %}{% set ns.x = [ns.x] %}{% endfor %}{% endfor %}".to_owned(),
        "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% for i in range(9) %}{% set ns.x = {1: ns.x} %}{% endfor %}{% endfor %}".to_owned(),
        "{% if x %}".to_owned() + &"{% elif x %}".repeat(10_000) + "{% endif %}",
        format!("{{{{ x{} }}}}", ".x".repeat(100_000)),
        format!("{{{{ 1{} }}}}", "+1".repeat(100_000)),
        format!("{{{{ x{} }}}}", "|trim".repeat(100_000)),
    ];
    for source in cases {
        let error = render(&source).unwrap_err();
        assert!(!error.to_string().contains("panicked"), "{source:.60}: {error}");
    }
}

#[test]
fn syntax_errors_have_the_template_s_line() {
    for (source, line, part) in [
        ("a\n{{ x", 2, "unexpected end of"),
        ("a\n\n{% if x %}", 3, "unexpected end of"),
        ("{% nonsense %}", 1, "unknown statement nonsense"),
        ("\n{{ 'a }}", 2, "unexpected end of string"),
        ("{{ 1 + }}", 1, "unexpected end of variable block"),
        ("\n\n{% endfor %}", 3, "unknown statement endfor"),
        ("{% for x in %}{% endfor %}", 1, "unexpected"),
        ("{% for %}{% endfor %}", 1, "unexpected"),
        ("a\r\nb\r\n{% if %}", 3, "unexpected"),
    ] {
        match Template::parse(source) {
            Err(TemplateError::Syntax { line: found, message }) => {
                assert!(found == line && message.contains(part), "{source:?}: line {found}: {message}");
            }
            other => panic!("{source:?}: {other:?}"),
        }
    }
    let long = " ".repeat((1 << 20) + 1);
    assert_eq!(Template::parse(&long).unwrap_err(), TemplateError::TooLarge { bytes: long.len() });
}

#[test]
fn errors_while_rendering_have_the_line_of_the_operation() {
    for (source, message) in [
        (
            "\n{{ raise_exception('No system role') }}",
            "the chat template refuses the conversation: No system role (line 2)",
        ),
        (
            "{% macro f(x) %}\n{{ raise_exception('no ' ~ x) }}{% endmacro %}\n\n{{ f('tools') }}",
            "the chat template refuses the conversation: no tools (line 2)",
        ),
        ("\n\n{{ nothing.at.all }}", "chat template, line 3: undefined value"),
        (
            "{{ messages[0].content.no_such() }}",
            "chat template, line 1: unknown method: string has no method named no_such",
        ),
        ("{{ messages | no_such }}", "chat template, line 1: unknown filter: filter no_such is unknown"),
        ("{% for x in none %}{% endfor %}", "chat template, line 1: invalid operation: none is not iterable"),
        (
            "{{ missing | tojson }}",
            "chat template, line 1: invalid operation: tojson: undefined is not JSON serializable",
        ),
        ("{{ strftime_now('%Q%') }}", "chat template, line 1: invalid operation: strftime_now: "),
        ("{% include 'other' %}", "chat template, line 1: "),
    ] {
        let found = render(source).unwrap_err().to_string();
        assert!(found.starts_with(message), "{source}: {found}");
    }
}
