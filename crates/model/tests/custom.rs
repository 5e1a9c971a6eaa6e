//! Entities that a plugin declares and that refer to each other: teams, which end by themselves, and the badges of a
//! team.
use serde_json::json;
use weir_model::entity::{CustomEntity, CustomEntitySchema, CustomKind, DerivedId, Entity, EntityKind};
use weir_model::schema::{Json, Record};
use weir_model::{
    ConstraintError, Document, Entities, Format, ParsedDocument, PluginSchema, ReadOptions, Uuid,
};

/// No fields.
#[derive(Debug, Clone, Record)]
struct Config {}

#[derive(Clone, PartialEq, Record)]
struct Team {
    #[field(auto)]
    id: Uuid,
    #[field(unique)]
    name: String,
    ttl: Option<i64>,
    created_at: Option<i64>,
}

impl CustomEntity for Team {
    const ENTITY: &'static CustomEntitySchema = &CustomEntitySchema::of::<Self>("teams")
        .with_endpoint_key("name")
        .with_derived_id(DerivedId::Field("name"))
        .with_ttl("ttl");
}

#[derive(Clone, PartialEq, Record)]
struct Badge {
    #[field(auto)]
    id: Uuid,
    #[field(foreign = "teams")]
    team: Uuid,
    #[field(unique)]
    number: Option<i64>,
    #[field(unique)]
    weight: Option<f64>,
    /// Made up when not given, so that no message shows it.
    #[field(auto, unique)]
    code: Option<String>,
    #[field(default = "red", one_of = ["red", "blue"])]
    color: String,
    #[field(default = 1)]
    row: i64,
}

impl CustomEntity for Badge {
    // Its name comes before that of what it refers to.
    const ENTITY: &'static CustomEntitySchema = &CustomEntitySchema::of::<Self>("badges")
        .with_unique_together(&["team", "row", "color"])
        .with_referenced(&[Team::ENTITY]);
}

const PLUGINS: &[PluginSchema] =
    &[PluginSchema::of::<Config>("badges").with_entities(&[Badge::ENTITY, Team::ENTITY])];
const TEAMS: EntityKind = EntityKind::Custom(CustomKind::of::<Team>());
const BADGES: EntityKind = EntityKind::Custom(CustomKind::of::<Badge>());

fn read(text: &str) -> Result<ParsedDocument, Vec<String>> {
    let text = format!("_format_version: \"3.0\"\n{text}");
    let shown = |problem: &weir_model::ConfigError| format!("{}: {}", problem.path, problem.message);
    Document::read(&text, Format::Yaml, PLUGINS, &|_| None)
        .map_err(|problems| problems.iter().map(shown).collect())
}

fn problems(text: &str) -> Vec<String> {
    read(text).err().unwrap_or_default()
}

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn entity(kind: EntityKind, number: u128, written: Json) -> Entity {
    let reading = ReadOptions { plugins: PLUGINS, references: &(), hash_passwords: false };
    Entity::read(kind, &written, &[("id", id(number))], reading).unwrap()
}

#[test]
fn files_nest_them_and_name_them() {
    let text = "teams:\n- name: ops\n  badges: [{number: 1}]\nbadges: [{number: 2, row: 2, team: ops}]\n";
    let document = read(text).unwrap().document;
    let [team] = document.custom.list(CustomKind::of::<Team>()) else { panic!("one team") };
    let badges: Vec<&Badge> = document.custom.of().collect();
    assert!(badges.len() == 2 && badges.iter().all(|badge| badge.team == team.id()));
    let mut entities = Entities::default();
    for entity in document.into_entities() {
        entities.put(entity).unwrap();
    }
    assert_eq!(entities.len(), 3, "those that others refer to come before these");
}

#[test]
fn references_to_what_is_not_there_are_refused() {
    let unknown = problems("badges: [{team: opt}]\nteams: [{name: ops}]\n");
    assert_eq!(unknown, ["badges[0].team: \"opt\" is none of the teams; did you mean `ops`?"]);
    let mut entities = Entities::default();
    let badge = entity(BADGES, 2, json!({ "team": { "id": id(1) } }));
    let refused = entities.put(badge.clone());
    assert!(matches!(refused, Err(ConstraintError::MissingReference(to)) if to.id == id(1)), "{refused:?}");
    entities.put(entity(TEAMS, 1, json!({ "name": "ops" }))).unwrap();
    entities.put(badge).unwrap();
}

#[test]
fn they_go_with_what_they_refer_to() {
    let team = |ttl: Option<i64>| entity(TEAMS, 1, json!({ "name": "a", "ttl": ttl, "created_at": 100 }));
    let badge = entity(BADGES, 2, json!({ "team": { "id": id(1) } }));
    let all = |ttl| [team(ttl), badge.clone()].into_iter().collect::<Entities>();
    let mut deleted = all(None);
    assert_eq!(deleted.delete(TEAMS, id(1)), Ok(vec![badge.clone(), team(None)]));
    let mut expired = all(Some(10));
    assert_eq!(expired.expire(109), []);
    assert_eq!(expired.expire(110), [badge.clone(), team(Some(10))]);
    assert!(deleted.is_empty() && expired.is_empty());
}

#[test]
fn files_have_unique_values_of_every_type_once() {
    let of = |fields: &str| {
        let badges = format!("teams:\n- {{name: ops}}\nbadges:\n- {{team: ops, {fields}}}\n");
        problems(&format!("{badges}- {{team: ops, row: 2, {fields}}}\n"))
    };
    assert_eq!(
        of("number: 7"),
        ["badges[1].number: the number `7` is here twice; choose another (first at line 5)"]
    );
    assert_eq!(
        of("weight: 2.5"),
        ["badges[1].weight: the weight `2.5` is here twice; choose another (first at line 5)"]
    );
    assert_eq!(
        of("code: hunter2"),
        ["badges[1].code: the same code is here twice; choose another (first at line 5)"]
    );
    assert!(of("color: blue").is_empty());
    let together = "teams: [{name: ops}]\nbadges: [{team: ops}, {team: ops, color: blue}, {team: ops}]\n";
    assert_eq!(
        problems(together),
        ["badges[2].color: the color `red` is here twice; remove one (first at line 3)"]
    );
}

/// What is declared of an entity that cannot be.
#[derive(Clone, PartialEq, Record)]
struct Odd {
    id: Uuid,
    share: f64,
    #[field(foreign = "badges")]
    badge: Uuid,
    #[field(foreign = "consumers")]
    consumers: Vec<Uuid>,
}

impl CustomEntity for Odd {
    const ENTITY: &'static CustomEntitySchema = &CustomEntitySchema::of::<Self>("odd");
}

#[test]
#[should_panic(expected = "a whole number")]
fn a_ttl_is_a_whole_number() {
    Odd::ENTITY.clone().with_ttl("share");
}

#[test]
#[should_panic(expected = "needs the field `created_at")]
fn a_ttl_needs_the_time_of_creation() {
    Badge::ENTITY.clone().with_ttl("number");
}

#[test]
#[should_panic(expected = "whose type is `String`")]
fn an_endpoint_key_is_a_text() {
    Badge::ENTITY.clone().with_endpoint_key("number");
}

#[test]
#[should_panic(expected = "`foreign` names a collection")]
fn a_reference_names_a_collection_that_is_known() {
    PluginSchema::of::<Config>("odd").with_entities(&[Odd::ENTITY]);
}

#[test]
#[should_panic(expected = "refers to one other")]
fn a_list_of_references_is_refused() {
    const KNOWN: &CustomEntitySchema =
        &CustomEntitySchema::of::<Odd>("odd").with_referenced(&[Badge::ENTITY]);
    PluginSchema::of::<Config>("odd").with_entities(&[KNOWN]);
}
