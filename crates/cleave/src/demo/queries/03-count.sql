-- One column, one number.
SELECT count(DISTINCT role_id) AS roles, count(person_role_id) AS named_characters
FROM cast_info;
