// Command dex is dex's server with one client and one user, in memory.
//
//	dex ADDRESS CLIENT SECRET REDIRECT_URI EMAIL BCRYPT_HASH
//
// It is a program of its own because that of dex needs a version of another module that is not published.
package main

import (
	"context"
	"log"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/server/authflow"
	"github.com/dexidp/dex/server/connectors"
	"github.com/dexidp/dex/server/signer"
	"github.com/dexidp/dex/server/tokens"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"github.com/prometheus/client_golang/prometheus"
)

const lifetime = time.Hour

// inMemory renews tokens without its lock, because dex reads from the storage meanwhile, which would wait for that lock.
type inMemory struct{ storage.Storage }

func (s inMemory) UpdateRefreshToken(
	ctx context.Context, id string, update func(storage.RefreshToken) (storage.RefreshToken, error),
) error {
	old, err := s.GetRefresh(ctx, id)
	if err != nil {
		return err
	}
	updated, err := update(old)
	if err != nil {
		return err
	}
	return s.Storage.UpdateRefreshToken(ctx, id, func(storage.RefreshToken) (storage.RefreshToken, error) {
		return updated, nil
	})
}

func main() {
	if len(os.Args) != 7 {
		log.Fatal("usage: dex ADDRESS CLIENT SECRET REDIRECT_URI EMAIL BCRYPT_HASH")
	}
	address := os.Args[1]
	handler, err := provider("http://"+address+"/dex", os.Args[2:])
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(address, handler))
}

func provider(issuer string, args []string) (http.Handler, error) {
	ctx, logger := context.Background(), slog.New(slog.NewTextHandler(os.Stderr, nil))
	client := storage.Client{ID: args[0], Name: args[0], Secret: args[1], RedirectURIs: []string{args[2]}}
	user := storage.Password{Email: args[3], Username: "alice", UserID: "u-1", Hash: []byte(args[4])}
	local := storage.Connector{ID: connectors.LocalConnector, Name: "Email", Type: connectors.LocalConnector}
	store := storage.WithStaticClients(inMemory{memory.New(logger)}, []storage.Client{client})
	store = storage.WithStaticPasswords(store, []storage.Password{user}, logger)
	store = storage.WithStaticConnectors(store, []storage.Connector{local})
	keys := signer.LocalConfig{KeysRotationPeriod: "6h"}
	signs, err := keys.Open(ctx, store, lifetime, time.Now, logger)
	if err != nil {
		return nil, err
	}
	refresh, err := tokens.NewRefreshTokenPolicy(logger, false, "", "", "")
	if err != nil {
		return nil, err
	}
	return server.NewServer(ctx, server.Config{
		Issuer:             issuer,
		Storage:            store,
		SkipApprovalScreen: true,
		IDTokensValidFor:   lifetime,
		RefreshTokenPolicy: refresh,
		PKCE:               authflow.PKCEConfig{CodeChallengeMethodsSupported: []string{"S256"}},
		PrometheusRegistry: prometheus.NewRegistry(),
		Signer:             signs,
		Logger:             logger,
	})
}
