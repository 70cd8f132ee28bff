-- What the conversion of the table with the oid %[1]d has to do: the phase, and the statement or the name.
-- Names are those from before the table is renamed, so each statement is for the partitioned table.
SELECT 'refuse', 'identity of the column ' || attname FROM pg_attribute
WHERE attrelid = %[1]d AND attidentity <> '' AND NOT attisdropped
UNION ALL
SELECT 'refuse', 'view ' || v.oid::regclass FROM pg_class v
WHERE v.oid IN (SELECT r.ev_class FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid
  WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass
    AND d.refobjid = %[1]d AND r.ev_class <> %[1]d)
UNION ALL
SELECT 'refuse', 'rule ' || rulename FROM pg_rewrite WHERE ev_class = %[1]d
UNION ALL
SELECT 'refuse', 'trigger ' || tgname FROM pg_trigger
WHERE tgrelid = %[1]d AND NOT tgisinternal AND tgname NOT LIKE 'uid\_follow\_%%'
UNION ALL
SELECT 'refuse', 'policy ' || polname FROM pg_policy WHERE polrelid = %[1]d
UNION ALL
SELECT 'refuse', 'publication ' || pubname 
FROM pg_publication_rel JOIN pg_publication p ON p.oid = prpubid WHERE prrelid = %[1]d
UNION ALL
-- Publications of all tables, or of a schema's, would publish the rows as those of the partitions. Subscribers would stop.
SELECT 'refuse', 'publication ' || p.pubname || ' without publish_via_partition_root'
FROM pg_publication_tables t JOIN pg_publication p ON p.pubname = t.pubname JOIN pg_class c ON c.oid = %[1]d
JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = t.schemaname AND c.relname = t.tablename
WHERE NOT COALESCE((to_jsonb(p) ->> 'pubviaroot')::boolean, false)
  AND NOT EXISTS (SELECT 1 FROM pg_publication_rel WHERE prrelid = %[1]d AND prpubid = p.oid)
UNION ALL
SELECT 'refuse', 'inheritance by ' || inhrelid::regclass FROM pg_inherits WHERE inhparent = %[1]d
UNION ALL
SELECT 'refuse', 'inheritance from ' || inhparent::regclass FROM pg_inherits WHERE inhrelid = %[1]d
UNION ALL
SELECT 'refuse', 'row level security' FROM pg_class WHERE oid = %[1]d AND relrowsecurity
UNION ALL
SELECT 'refuse', 'policy ' || polname || ' of ' || polrelid::regclass FROM pg_policy
WHERE polrelid <> %[1]d AND oid IN (SELECT objid FROM pg_depend
  WHERE classid = 'pg_policy'::regclass AND refclassid = 'pg_class'::regclass AND refobjid = %[1]d)
UNION ALL
-- A function refers to the table by its oid in the body BEGIN ATOMIC, and in the types of its arguments.
SELECT 'refuse', 'function ' || p.oid::regprocedure FROM pg_proc p
WHERE p.oid IN (SELECT d.objid FROM pg_depend d JOIN pg_class c ON c.oid = %[1]d LEFT JOIN pg_type y ON y.oid = c.reltype
  WHERE d.classid = 'pg_proc'::regclass AND (d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
    OR d.refclassid = 'pg_type'::regclass AND d.refobjid IN (c.reltype, y.typarray)))
UNION ALL
SELECT 'refuse', 'column ' || a.attname || ' of ' || a.attrelid::regclass || ', which has rows of it'
FROM pg_class c JOIN pg_type y ON y.oid = c.reltype JOIN pg_attribute a ON a.atttypid IN (c.reltype, y.typarray)
JOIN pg_class r ON r.oid = a.attrelid AND r.relkind IN ('r', 'p', 'm', 'c') WHERE c.oid = %[1]d AND NOT a.attisdropped
UNION ALL
SELECT 'refuse', 'privileges on the column ' || attname FROM pg_attribute WHERE attrelid = %[1]d AND attacl IS NOT NULL
UNION ALL
SELECT 'refuse', 'index ' || indexrelid::regclass || ', which is unique without the key' FROM pg_index
WHERE indrelid = %[1]d AND (indisunique OR indisexclusion) AND NOT (SELECT attnum FROM pg_attribute
  WHERE attrelid = %[1]d AND attname = %[2]s) = ANY ((indkey::int2[])[0:indnkeyatts - 1])
UNION ALL
SELECT 'follow', 'DROP TRIGGER ' || quote_ident(tgname) || ' ON ' || %[3]s FROM pg_trigger
WHERE tgrelid = %[1]d AND NOT tgisinternal AND tgname LIKE 'uid\_follow\_%%'
UNION ALL
SELECT 'unlink', format('ALTER TABLE %%I.%%I DROP CONSTRAINT %%I', n.nspname, c.relname, k.conname)
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE k.contype = 'f' AND k.confrelid = %[1]d AND k.conparentid = 0
UNION ALL
SELECT 'rename', format('ALTER INDEX %%I.%%I RENAME TO %%I', n.nspname, c.relname, left(c.relname, 56) || '_first')
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE i.indrelid = %[1]d
UNION ALL
SELECT 'define', COALESCE('ALTER TABLE ' || %[3]s || ' ADD CONSTRAINT ' || quote_ident(k.conname) || ' ' ||
  pg_get_constraintdef(k.oid), pg_get_indexdef(i.indexrelid))
FROM pg_index i LEFT JOIN pg_constraint k ON k.conindid = i.indexrelid AND k.conrelid = i.indrelid
  AND k.contype IN ('p', 'u', 'x')
WHERE i.indrelid = %[1]d AND i.indisvalid
UNION ALL
SELECT 'refer',
  'ALTER TABLE ' || %[3]s || ' ADD CONSTRAINT ' || quote_ident(conname) || ' ' || pg_get_constraintdef(oid)
FROM pg_constraint WHERE conrelid = %[1]d AND contype = 'f' AND confrelid <> %[1]d
UNION ALL
-- A foreign key of a partitioned table cannot be NOT VALID.
SELECT 'link', format('ALTER TABLE %%I.%%I ADD CONSTRAINT %%I %%s', n.nspname, c.relname, k.conname,
  pg_get_constraintdef(k.oid)) ||
  CASE WHEN c.relkind = 'p' OR c.oid = %[1]d OR NOT k.convalidated THEN '' ELSE ' NOT VALID' END
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE k.contype = 'f' AND k.confrelid = %[1]d AND k.conparentid = 0
UNION ALL
SELECT 'validate', format('ALTER TABLE %%I.%%I VALIDATE CONSTRAINT %%I', n.nspname, c.relname, k.conname)
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE k.contype = 'f' AND k.confrelid = %[1]d AND k.conparentid = 0 AND k.convalidated AND c.relkind <> 'p'
  AND c.oid <> %[1]d
UNION ALL
SELECT 'own', format('ALTER SEQUENCE %%s OWNED BY %%s.%%I', d.objid::regclass, %[3]s, a.attname)
FROM pg_depend d JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
JOIN pg_attribute a ON a.attrelid = %[1]d AND a.attnum = d.refobjsubid
WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = %[1]d
  AND d.deptype = 'a'
UNION ALL
SELECT 'owner', format('ALTER TABLE %%s OWNER TO %%I', %[3]s, pg_get_userbyid(relowner)) FROM pg_class WHERE oid = %[1]d
UNION ALL
SELECT 'own', format('COMMENT ON TABLE %%s IS %%L', %[3]s, obj_description(%[1]d, 'pg_class'))
WHERE obj_description(%[1]d, 'pg_class') IS NOT NULL
UNION ALL
-- ALTER DEFAULT PRIVILEGES may give the new table more than the old one had.
SELECT 'revoke', 'EXECUTE COALESCE((SELECT string_agg(DISTINCT format(''REVOKE ALL ON %%s FROM %%s'', c.oid::regclass, '
  'CASE grantee WHEN 0 THEN ''PUBLIC'' ELSE quote_ident(pg_get_userbyid(grantee)) END), ''; '') '
  'FROM pg_class c, aclexplode(relacl) WHERE c.oid = ' || quote_literal(%[3]s) || '::regclass AND grantee <> relowner), ''SELECT 1'')'
WHERE EXISTS (SELECT 1 FROM pg_default_acl WHERE defaclobjtype = 'r')
UNION ALL
SELECT 'grant', format('GRANT %%s ON %%s TO %%s', privilege_type, %[3]s,
  CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END) ||
  CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
FROM pg_class, aclexplode(relacl) WHERE pg_class.oid = %[1]d AND grantee <> relowner
