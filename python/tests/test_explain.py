"""EXPLAIN as an object: text, JSON and a picture in which no text of a plan is markup."""

import json
import xml.dom.minidom

import cleave
import pytest
from cleave import Explain


def test_a_plan_of_both_sides_is_drawn(db):
    db.execute("CREATE TABLE t (id int, kind int)")
    db.execute("INSERT INTO t SELECT v, v % 5 FROM generate_series(1, 50000) AS s(v)")
    query = "SELECT kind, count(*) FROM t WHERE id > ? GROUP BY kind"
    db.execute("SET split = h0")
    split = db.explain(query, [5])
    assert split.devices == ["embedded"] and "embedded" in split.svg and "count" in str(split)
    picture = xml.dom.minidom.parseString(split.svg).documentElement
    assert picture.getAttribute("role") == "img" and picture.getElementsByTagName("title")
    boxes = [rect.getAttribute("class") for rect in picture.getElementsByTagName("rect")]
    # A fragment is drawn as the link.
    operators = [one for root in split.roots for one in root.walk() if not one.detail.startswith("Fragment")]
    assert boxes.count("host-box") == sum(one.on_host for one in operators)
    assert boxes.count("device-box") == sum(not one.on_host for one in operators) > 0
    assert split._repr_html_().startswith("<div") and split._repr_svg_() == split.svg
    db.execute("SET split = host")
    alone = db.explain(query, [5])
    assert alone.devices == [] and 'class="device-box"' not in alone.svg
    measured = db.explain(query, [5], analyze=True)
    assert any(one.rows == 5 for one in measured.roots[0].walk())
    with pytest.raises(cleave.ProgrammingError):
        db.explain("SELECT nothing")
    with pytest.raises(cleave.NotSupportedError, match="more than one"):
        db.explain("SELECT 1; DROP TABLE film")


def test_texts_of_a_plan_are_escaped():
    below = {"Node Type": "Scan", "Description": '"&', "Side": "device", "Device": "</svg>"}
    above = {"Node Type": "<b>", "Description": "\x01<script>", "Side": "host", "Plans": [below]}
    plan = Explain("", json.dumps([{"Plan": above, "Candidates": [{"split": "<i>"}]}]))
    xml.dom.minidom.parseString(plan.svg)
    for markup in ["<b>", "<script", "<i>", "\x01"]:
        assert markup not in plan._repr_html_()


def test_plans_in_the_form_of_postgresql_are_read():
    plan = Explain("", '[{"Plan":{"Node Type":"Aggregate","Plan Rows":1,"Side":"host","Plans":['
                       '{"Node Type":"Seq Scan","Relation Name":"t","Actual Rows":3},'
                       '{"Node Type":"Seq Scan","Description":"Scan of u","Side":"device","Device":"nas"}]}}]')
    [root] = plan.roots
    assert (root.name, root.expected, root.inputs[0].rows) == ("Aggregate", 1, 3)
    assert plan.devices == ["nas"] and root.inputs[1].detail == "Scan of u"
    assert "Seq Scan: Relation Name: t  (rows 3)" in str(plan)
    assert "Relation Name: t" in plan.svg
    xml.dom.minidom.parseString(plan.svg)


def test_without_a_picture_there_is_the_text():
    for plan in ['[{"Candidates":[]}]', '[{"Plan":' * 100 + "1" + "}]" * 100]:
        without = Explain("", plan, "a < b")
        assert without._repr_svg_() is None and without._repr_html_() == "<pre>a &lt; b</pre>"
        with pytest.raises(cleave.NotSupportedError):
            assert without.svg
