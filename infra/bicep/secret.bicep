// One secret of the vault.
param vaultName string
param name string
@secure()
param value string

@description('End of the secret written now; deploying it again renews it.')
param end int = dateTimeToEpoch(dateTimeAdd(utcNow(), 'P1Y'))

resource vault 'Microsoft.KeyVault/vaults@2023-07-01' existing = {
  name: vaultName
}

resource secret 'Microsoft.KeyVault/vaults/secrets@2023-07-01' = {
  parent: vault
  name: name
  properties: {
    value: value
    contentType: 'text/plain'
    attributes: {
      enabled: true
      exp: end
    }
  }
}

output uri string = secret.properties.secretUri
