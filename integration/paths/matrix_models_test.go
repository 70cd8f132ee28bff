package paths_test

import (
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// These are the models of TestMatrix, for keys of any kind. GORM cannot guess the foreign keys of generic types, so
// they are named.
type (
	mCountry[K key] struct {
		ID   K `gorm:"primaryKey;uid"`
		Name string
	}
	mCompany[K key] struct {
		ID        K      `gorm:"primaryKey;uid"`
		Name      string `gorm:"size:60;unique"`
		CountryID K
		Country   *mCountry[K]
	}
	mUser[K key] struct {
		ID        K `gorm:"primaryKey;uid"`
		Name      string
		CompanyID K
		Company   *mCompany[K]
		Profile   *mProfile[K] `gorm:"foreignKey:UserID"`
		Orders    []mOrder[K]  `gorm:"foreignKey:UserID"`
		Pets      []mPet[K]    `gorm:"polymorphic:Owner"`
		ManagerID K
		Team      []mUser[K] `gorm:"foreignKey:ManagerID"`
	}
	mProfile[K key] struct {
		ID     K `gorm:"primaryKey;uid"`
		UserID K
		Name   string
		Photo  mPhoto[K] `gorm:"foreignKey:ProfileID"`
	}
	mPhoto[K key] struct {
		ID        K `gorm:"primaryKey;uid"`
		ProfileID K
		Name      string
	}
	mOrder[K key] struct {
		ID     K `gorm:"primaryKey;uid"`
		UserID K
		Name   string
		Note   string
		Items  []*mItem[K] `gorm:"foreignKey:OrderID"`
	}
	mItem[K key] struct {
		ID      K `gorm:"primaryKey;uid"`
		OrderID K
		Name    string
	}
	mRole[K key] struct {
		ID   K `gorm:"primaryKey;uid"`
		Name string
	}
	// mMember has a many2many association. GORM names a struct field after the owner, and the name of a generic type
	// is no field name. So each kind of key has a type.
	mMember[K key] struct {
		ID    K `gorm:"primaryKey;uid"`
		Name  string
		Roles []mRole[K] `gorm:"many2many:member_roles;joinForeignKey:MemberID;joinReferences:RoleID"`
		Tags  []*mTag[K] `gorm:"many2many:member_tags;joinForeignKey:MemberID;joinReferences:TagID"`
	}
	mMemberInt64   mMember[int64]
	mMemberUint64  mMember[uint64]
	mMemberString  mMember[string]
	mMemberID      mMember[uidplugin.ID]
	mMemberPointer mMember[*int64]
	mTag[K key]    struct {
		ID   K `gorm:"primaryKey;uid"`
		Name string
	}
	// mMemberTag is a join table with a key of its own.
	mMemberTag[K key] struct {
		ID       K `gorm:"primaryKey;uid"`
		MemberID K
		TagID    K
	}
	mPet[K key] struct {
		ID        K `gorm:"primaryKey;uid"`
		OwnerID   K
		OwnerType string
		Name      string
		Toy       *mToy[K] `gorm:"polymorphic:Owner"`
	}
	mToy[K key] struct {
		ID        K `gorm:"primaryKey;uid"`
		OwnerID   K
		OwnerType string
		Name      string
	}

	// mUnique is for upserts.
	mUnique[K key] struct {
		ID    K      `gorm:"primaryKey;uid"`
		Name  string `gorm:"size:60;unique"`
		Value int
	}
	// mPartial has an index on a part of its rows where the engine has that.
	mPartial[K key] struct {
		ID    K      `gorm:"primaryKey;uid"`
		Name  string `gorm:"size:60"`
		Value int
	}
	mBulk[K key] struct {
		ID K `gorm:"primaryKey;uid"`
	}

	mComposite[K key] struct {
		Tenant int64 `gorm:"primaryKey;autoIncrement:false"`
		No     K     `gorm:"primaryKey;autoIncrement:false;uid"`
		Name   string
		Lines  []mLine[K] `gorm:"foreignKey:Tenant,CompositeNo;references:Tenant,No"`
	}
	mLine[K key] struct {
		ID          K `gorm:"primaryKey;uid"`
		Tenant      int64
		CompositeNo K
		Name        string `gorm:"size:60;unique"`
	}
	mSeveral[K key] struct {
		ID     K       `gorm:"primaryKey;uid"`
		Code   K       `gorm:"uid:snowflake"`
		Ref    *int64  `gorm:"uid"`
		Text   string  `gorm:"uid;size:24"`
		Number uint64  `gorm:"uid"`
		Public *string `gorm:"uid"`
		Name   string
	}
	// mSecond has a uid that is no key; its key is the database's.
	mSecond[K key] struct {
		ID   int64 `gorm:"primaryKey"`
		Code K     `gorm:"uid"`
		Name string
	}
	// mNatural has a uid that is no key, and a key of its own.
	mNatural[K key] struct {
		Name string `gorm:"primaryKey;size:60"`
		Code K      `gorm:"uid"`
		Uses int
	}
	mSoft[K key] struct {
		ID        K `gorm:"primaryKey;uid"`
		Name      string
		CreatedAt time.Time
		UpdatedAt time.Time
		DeletedAt gorm.DeletedAt `gorm:"index"`
	}
	mSerial[K key] struct {
		ID     K `gorm:"primaryKey;uid"`
		Name   string
		Labels []string       `gorm:"serializer:json;type:text"`
		Extra  map[string]int `gorm:"serializer:gob;type:bytes"`
		Status string         `gorm:"default:new"`
		Level  int            `gorm:"default:3"`
	}

	// MKey and MPart are embedded.
	MKey[K key] struct {
		ID K `gorm:"primaryKey;uid"`
	}
	MPart[K key] struct {
		Code K `gorm:"uid"`
		City string
	}
	mEmbedded[K key] struct {
		MKey[K]
		Name string
	}
	mEmbeddedPointer[K key] struct {
		*MKey[K]
		Name string
	}
	mPrefixed[K key] struct {
		Key  MKey[K]   `gorm:"embedded;embeddedPrefix:my_"`
		Home MPart[K]  `gorm:"embedded;embeddedPrefix:home_"`
		Work *MPart[K] `gorm:"embedded;embeddedPrefix:work_"`
		Name string
	}
	mShadow[K key] struct {
		gorm.Model
		ID   K `gorm:"primaryKey;uid"`
		Name string
	}
	mColumns[K key] struct {
		ID   K      `gorm:"column:KEY;primaryKey;uid"`
		Name string `gorm:"column:Full Name"`
	}
	mCapitals[K key] struct {
		ID   K `gorm:"primaryKey;uid"`
		Name string
	}
	// mNamed asks GORM's naming strategy for its table.
	mNamed[K key] struct {
		ID   K `gorm:"primaryKey;uid"`
		Name string
	}
	// mUntagged is of someone who does not use the plugin.
	mUntagged[K key] struct {
		ID   int64
		Name string
	}
)

func (mCountry[K]) TableName() string         { return "countries" }
func (mCompany[K]) TableName() string         { return "companies" }
func (mUser[K]) TableName() string            { return "users" }
func (mProfile[K]) TableName() string         { return "profiles" }
func (mPhoto[K]) TableName() string           { return "photos" }
func (mOrder[K]) TableName() string           { return "orders" }
func (mItem[K]) TableName() string            { return "items" }
func (mRole[K]) TableName() string            { return "roles" }
func (mMemberInt64) TableName() string        { return "members" }
func (mMemberUint64) TableName() string       { return "members" }
func (mMemberString) TableName() string       { return "members" }
func (mMemberID) TableName() string           { return "members" }
func (mMemberPointer) TableName() string      { return "members" }
func (mTag[K]) TableName() string             { return "tags" }
func (mMemberTag[K]) TableName() string       { return "member_tags" }
func (mPet[K]) TableName() string             { return "pets" }
func (mToy[K]) TableName() string             { return "toys" }
func (mUnique[K]) TableName() string          { return "uniques" }
func (mPartial[K]) TableName() string         { return "partials" }
func (mBulk[K]) TableName() string            { return "bulks" }
func (mComposite[K]) TableName() string       { return "composites" }
func (mLine[K]) TableName() string            { return "composite_lines" }
func (mSeveral[K]) TableName() string         { return "severals" }
func (mSecond[K]) TableName() string          { return "seconds" }
func (mNatural[K]) TableName() string         { return "naturals" }
func (mSoft[K]) TableName() string            { return "softs" }
func (mSerial[K]) TableName() string          { return "serials" }
func (mEmbedded[K]) TableName() string        { return "embeddeds" }
func (mEmbeddedPointer[K]) TableName() string { return "embedded_pointers" }
func (mPrefixed[K]) TableName() string        { return "prefixeds" }
func (mShadow[K]) TableName() string          { return "shadows" }
func (mColumns[K]) TableName() string         { return "odd columns" }
func (mCapitals[K]) TableName() string        { return "CAPITALS" }
func (mUntagged[K]) TableName() string        { return "untaggeds" }

// TableName implements GORM's TablerWithNamer.
func (mNamed[K]) TableName(namer schema.Namer) string { return namer.TableName("Named") }

var _ schema.TablerWithNamer = mNamed[int64]{}

// Models whose keys are of one kind.
type (
	mOurModel struct {
		uidplugin.Model
		Name string
	}
	mGORMModel struct {
		gorm.Model `gorm:"uid"`
		Name       string
	}
	// mGuild has many to many over two levels.
	mGuild struct {
		ID       int64 `gorm:"primaryKey;uid"`
		Name     string
		Fighters []mFighter `gorm:"many2many:guild_fighters"`
	}
	mFighter struct {
		ID     int64 `gorm:"primaryKey;uid"`
		Name   string
		Skills []*mSkill `gorm:"many2many:fighter_skills"`
	}
	mSkill struct {
		ID   int64 `gorm:"primaryKey;uid"`
		Name string
	}
)

func (mGuild) TableName() string     { return "guilds" }
func (mFighter) TableName() string   { return "fighters" }
func (mSkill) TableName() string     { return "skills" }
func (mOurModel) TableName() string  { return "our_models" }
func (mGORMModel) TableName() string { return "gorm_models" }

// matrixModels are the models with a uid that have tables.
func matrixModels[K key]() []any {
	return []any{
		&mCountry[K]{}, &mCompany[K]{}, &mUser[K]{}, &mProfile[K]{}, &mPhoto[K]{}, &mOrder[K]{}, &mItem[K]{}, &mRole[K]{},
		owner(&mMember[K]{}), &mTag[K]{}, &mMemberTag[K]{}, &mPet[K]{}, &mToy[K]{}, &mUnique[K]{}, &mPartial[K]{}, &mBulk[K]{},
		&mComposite[K]{}, &mLine[K]{}, &mSeveral[K]{}, &mSecond[K]{}, &mNatural[K]{}, &mSoft[K]{}, &mSerial[K]{},
		&mEmbedded[K]{}, &mEmbeddedPointer[K]{}, &mPrefixed[K]{}, &mShadow[K]{}, &mColumns[K]{}, &mCapitals[K]{},
		&mNamed[K]{}, &mOurModel{}, &mGORMModel{}, &mGuild{}, &mFighter{}, &mSkill{},
	}
}

// prepare completes the tables.
func (l *lane[K]) prepare(t *testing.T) {
	t.Helper()
	db := l.without
	// 2025 is a table of orders that its model does not name.
	for table, model := range map[string]any{"orders_2025": &mOrder[K]{}, "Orders 2025": &mOrder[K]{}} {
		testkit.Must(t, db.Table(l.quoted(table)).Migrator().CreateTable(model))
		l.tables = append(l.tables, table)
	}
	testkit.Must(t, db.AutoMigrate(&mUntagged[K]{}))
	index := "CREATE UNIQUE INDEX partials_name ON partials (name)"
	if !l.IsMySQL() {
		index += " WHERE value > 0"
	}
	testkit.Must(t, db.Exec(index).Error)
	_, isText := any(*new(K)).(string)
	for _, m := range append(matrixModels[K](), &mUntagged[K]{}) {
		stmt := &gorm.Statement{DB: l.with}
		testkit.Must(t, stmt.Parse(m))
		l.tables = append(l.tables, stmt.Schema.Table)
		if l.kind.auto || l.Name == "sqlite" && !isText && stmt.Schema.PrioritizedPrimaryField != nil {
			key := stmt.Schema.PrimaryFieldDBNames[0]
			if len(stmt.Schema.PrimaryFields) == 1 && key != "name" {
				l.assignLarge(t, stmt.Schema.Table, key)
			}
		}
	}
	l.tables = append(l.tables, "member_roles", "guild_fighters", "fighter_skills")
	for i, table := range l.tables {
		l.tables[i] = strings.TrimSpace(table)
	}
}

// owner is a member as a pointer to the type that owns many to many.
func owner[K key](m *mMember[K]) any {
	switch m := any(m).(type) {
	case *mMember[int64]:
		return (*mMemberInt64)(m)
	case *mMember[uint64]:
		return (*mMemberUint64)(m)
	case *mMember[string]:
		return (*mMemberString)(m)
	case *mMember[uidplugin.ID]:
		return (*mMemberID)(m)
	case *mMember[*int64]:
		return (*mMemberPointer)(m)
	}
	return nil
}
